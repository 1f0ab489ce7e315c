"""Groups of any client, seen from outside: how fast they read, what is the matter with them, who owned what when.

Everything is made of what `admin` is told: samples of a group go in, values and pages come out. Nothing here joins a
group, reads a record, or asks a broker by itself, so that whatever client a group's members are, they notice nothing.
"""
