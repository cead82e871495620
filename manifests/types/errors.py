"""The errors that checks of single values raise; `kinds/validate.py` turns them into problems with a place and a hint."""

from pydantic_core import PydanticCustomError


def bad_value(message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """The error of a value of the right type that is not valid. `at` leads from the validated value to the bad part."""
    return PydanticCustomError("bad_value", "{message}", {"message": message, "hint": hint, "at": at})


def wrong_type(expected: str, value: object, hint: str = "") -> PydanticCustomError:
    """The error of a value of another type than `expected`."""
    message = f"expected {expected}, found {type_name(value)}"
    return PydanticCustomError("wrong_type", "{message}", {"message": message, "hint": hint, "at": ()})


def out_of_range(message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """The error of a number or length outside its limits."""
    return PydanticCustomError("out_of_range", "{message}", {"message": message, "hint": hint, "at": at})


def type_name(value: object) -> str:
    """The type of a value from YAML, in words for messages."""
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a string",
        dict: "a mapping",
        list: "a list",
    }
    return names.get(type(value), "something else")
