"""Orders what the ranks said and names the one that failed first. Pure: no file is read and no clock asked here."""
