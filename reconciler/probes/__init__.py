"""The probe engine: asks containers how they are, on time, whatever the rest of the program is doing."""
