"""What an update does beyond plain gradient accumulation, counted: it tells apart what no clock can.

Two loops over the same passes differ by less than a machine's moods where passes are long. Counts do not.
"""

from deepbilevel_lab.bench.contenders import ACCUMULATION, CLAIMED, EVERYBODY, NEAREST, SGD
from deepbilevel_lab.bench.counting import CountedWork, count_work
from deepbilevel_lab.bench.work import Setting, Work

OPERATIONS, MOVED, ALLOCATED = "operations", "read and written", "allocated"


def count_updates(setting: Setting) -> dict[str, dict[str, float]]:
    """Return for those whom claims are about, and the nearest peers, what they do beyond accumulation.

    Bytes are told in multiples of the model's size. A peer that fails is left out: where time is measured its reason
    is told. So is plain SGD, which makes one pass instead of k.
    """
    work = Work.of(setting)
    size = work.model_bytes
    counted: dict[str, CountedWork] = {}
    for contender in EVERYBODY:
        if contender.name not in CLAIMED + NEAREST or contender.name == SGD:
            continue
        try:
            update = contender.prepare(work)
            update()  # the steady state begins with the second one
            counted[contender.name] = count_work(update)
        except Exception:
            if contender.kind != "peer":
                raise
    plain = counted.pop(ACCUMULATION)
    beyond = {name: each - plain for name, each in counted.items()}
    return {
        name: {
            OPERATIONS: each.operations,
            MOVED: round(each.bytes_moved / size, 1),
            ALLOCATED: round(each.bytes_allocated / size, 1),
        }
        for name, each in beyond.items()
    }
