"""Damaged copies of files: the same ones for the same seed."""

import random


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Return the content with one to four bytes or slices changed, taken out, doubled or put elsewhere."""
    damaged = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(damaged) + 1)
        length = chance.randint(1, 8)
        match chance.randrange(6):
            case 0:
                damaged[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del damaged[at : at + length]
            case 2:
                damaged[at:at] = chance.randbytes(length)
            case 3:
                damaged[at:at] = damaged[at : at + 4 * length]
            case 4:
                other = chance.randrange(len(damaged) + 1)
                damaged[at : at + length] = damaged[other : other + length]
            case _:
                damaged[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f"))
    return bytes(damaged[: chance.randrange(len(damaged) + 1)] if chance.randrange(10) == 0 else damaged)
