#!/usr/bin/env python3
"""Writes the demo's jobs (jobs.ndjson) and what must come of them (EXPECTED.json).

    python3 cli/demo/generate.py           writes both files beside this script
    python3 cli/demo/generate.py --check   writes nothing; exits 1 if a file differs from what it would write

3,000 jobs of three kinds, each with work whose result can be checked:

    digest  SHA-256 of a text (a mail's subject, a reading of a sensor)
    parse   the sum of one field of a small document: CSV, INI or JSON
    render  a text made from a template and variables

120 of them (4 %) can't succeed, and only their data says so: a wrong checksum, a document that is
cut off, a variable that nobody gave. EXPECTED.json counts them by kind and by queue and lists their
lines by the first words of the error. It is made here, from the recipe, and never by running the
demo's handlers: the two are independent, so each checks the other.

Standard library only; no clock and no `random`: the same files on every machine and every Python 3.8+.
"""

import hashlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

QUEUES = ["mail", "reports", "ingest"]
NAMES = ["Ada", "Béatrice", "Chidi", "Dagny", "Emil", "Farida", "Grace", "Håkon", "Ines", "Jun", "Käthe", "Lwazi"]
CITIES = ["Utrecht", "Porto", "Tromsø", "Kraków", "Nairobi", "Osaka", "Montréal", "Graz", "Galway", "Zürich"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
MONTHS = ["January", "March", "April", "June", "August", "October", "November"]
TITLES = ["Budget draft", "Reading list", "Choir dates", "Roof repair", "Tram timetable", "Garden plan"]
GOODS = ["ink", "paper", "tea", "honey", "oats", "lamp", "wool", "chalk", "soap", "rope", "apples", "rye"]
METERS = ["hall", "attic", "cellar", "stable", "orchard", "pier"]
TAGS = ["spring", "vip", "nightly", "imported", "pilot"]


class Dice:
    """A stream of numbers that depends on its seed alone."""

    def __init__(self, seed):
        self.seed, self.drawn = seed, 0

    def below(self, n):
        """A number from 0 to n - 1."""
        self.drawn += 1
        block = hashlib.sha256(f"{self.seed}/{self.drawn}".encode()).digest()
        return int.from_bytes(block[:8], "big") % n

    def between(self, least, most):
        return least + self.below(most - least + 1)

    def pick(self, things):
        return things[self.below(len(things))]

    def shuffled(self, things):
        rest, out = list(things), []
        while rest:
            out.append(rest.pop(self.below(len(rest))))
        return out


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def money(cents):
    return f"{cents // 100}.{cents % 100:02}"


# --- digest: a text and its checksum -------------------------------------------------------------


def subject(dice):
    name, city, number = dice.pick(NAMES), dice.pick(CITIES), dice.between(10_000, 99_999)
    day, date = dice.pick(DAYS), f"{dice.between(1, 28)} {dice.pick(MONTHS)}"
    return dice.pick([
        f"Your order #{number} has left {city}",
        f"Re: {day}'s minutes",
        f"Invoice {number} is due on {date}",
        f"Welcome to the reading group, {name}!",
        f"{name} shared “{dice.pick(TITLES)}” with you",
        f"Reminder: dentist on {date}, 09:40",
        f"A parcel waits for you in {city}",
        f"Grüße aus {city}, {name}",
        f"{name}さん、荷物が届きました",
        f"Fwd: tickets to {city}, {date} 🎫",
        f"Lunch on {day}, {name}?",
    ])


def reading(dice):
    tenths = dice.between(-80, 310)
    sign = "-" if tenths < 0 else ""
    return (f"{dice.pick(METERS)} {dice.between(0, 23):02}:{dice.between(0, 59):02} "
            f"{sign}{abs(tenths) // 10}.{abs(tenths) % 10} °C {dice.between(30, 95)} %")


def digest(dice, queue, flaw):
    text = reading(dice) if queue == "ingest" else subject(dice)
    checksum = sha256(text)
    if flaw == "one digit differs":
        at = dice.below(64)
        other = "0123456789abcdef".replace(checksum[at], "")
        checksum = checksum[:at] + dice.pick(other) + checksum[at + 1:]
    elif flaw == "checksum of the text with a line feed":
        checksum = sha256(text + "\n")
    return {"text": text, "sha256": checksum}


# --- parse: a document and the sum of one of its fields ---------------------------------------------


def goods(dice):
    """Two to four goods with prices in cents."""
    return [(good, dice.between(40, 4_999)) for good in dice.shuffled(GOODS)[:dice.between(2, 4)]]


def csv(dice, flaw):
    rows = goods(dice)
    total = sum(cents for _, cents in rows)
    lines = ["item,amount"]
    for good, cents in rows:
        quoted = dice.below(6) == 0
        lines.append((f'"{good}, best",' if quoted else f"{good},") + money(cents))
    at = dice.between(1, len(rows))
    if flaw == "a row has a field too many":
        lines[at] = f"{rows[at - 1][0]},{money(rows[at - 1][1]).replace('.', ',')}"
    elif flaw == "no number":
        lines[at] = f"{rows[at - 1][0]},n/a"
    elif flaw == "a quote stays open":
        lines[at] = f'"{rows[at - 1][0]},{money(rows[at - 1][1])}'
    elif flaw == "the field is not there":
        lines[0] = "item,amuont"
    return "\n".join(lines) + "\n", total


def ini(dice, flaw):
    rows = goods(dice)
    lines = []
    for good, cents in rows:
        lines += [f"[{good}]", f"amount = {money(cents)}"]
    if dice.below(4) == 0:
        lines.insert(0, "; counted twice")
    if flaw == "a line is neither section nor key":
        lines[-1] = lines[-1].replace(" = ", " ")
    elif flaw == "the field is not there":
        lines = [line.replace("amount", "amuont") for line in lines]
    return "\n".join(lines) + "\n", sum(cents for _, cents in rows)


def json_rows(dice, flaw):
    rows = goods(dice)
    text = ",".join(f'{{"item":"{good}","amount":{money(cents)}}}' for good, cents in rows)
    text = f"[{text}]"
    if flaw == "cut off":
        text = text[:-dice.between(2, 9)]
    return text, sum(cents for _, cents in rows)


FORMATS = {"csv": csv, "ini": ini, "json": json_rows}
FORMATS_OF_FLAW = {
    "a row has a field too many": ["csv"],
    "no number": ["csv"],
    "a quote stays open": ["csv"],
    "a line is neither section nor key": ["ini"],
    "cut off": ["json"],
    "the field is not there": ["csv", "ini"],
}


def parse(dice, _queue, flaw):
    form = dice.pick(FORMATS_OF_FLAW.get(flaw, ["csv", "csv", "ini", "json"]))
    document, total = FORMATS[form](dice, flaw)
    if flaw == "the sum is off":
        total += dice.pick([-10, -1, 1, 100])
    return {"format": form, "document": document, "field": "amount", "sum": money(total)}


# --- render: a template, variables, and the text that must come of them --------------------------------

TEMPLATES = [
    "Hello {{name}}, your parcel from {{city}} is here.",
    "Dear {{name}},\nyour table on {{day}} is booked.\n",
    "{{name}} paid {{amount}} € for {{item}}.",
    "{{ item }} ({{amount}} €), ships from {{city}}",
    "Bonjour {{name}} ! À {{day}}, à {{city}}.",
    "{{day}}: {{name}} → {{city}}",
]


def render(dice, _queue, flaw):
    template = dice.pick(TEMPLATES)
    amounts = [money(dice.between(40, 4_999)) for _ in range(2)]
    choices = {"name": NAMES, "city": CITIES, "day": DAYS, "item": GOODS, "amount": amounts}
    every = {name: dice.pick(values) for name, values in choices.items()}
    variables = {name: value for name, value in every.items() if "{{" + name + "}}" in template.replace(" ", "")}
    expect = template
    for name, value in variables.items():
        expect = expect.replace("{{" + name + "}}", value).replace("{{ " + name + " }}", value)
    if flaw == "a variable is not given":
        del variables[dice.pick(sorted(variables))]
    elif flaw == "a placeholder stays open":
        template = template[:template.rindex("}}")]
    elif flaw == "another text was promised":
        name = dice.pick(sorted(variables))
        variables[name] = dice.pick([value for value in choices[name] if value != variables[name]])
    return {"template": template, "vars": variables, "expect": expect}


# --- the whole -------------------------------------------------------------------------------------

# Kind: how it is made, how many, the share of its queues in tenths, and its failures: first words of
# the error, flaw of the data, how many.
KINDS = {
    "digest": (digest, 1_400, {"mail": 7, "ingest": 3}, [
        ("digest mismatch", "one digit differs", 30),
        ("digest mismatch", "checksum of the text with a line feed", 26),
    ]),
    "parse": (parse, 900, {"ingest": 6, "reports": 4}, [
        ("sum mismatch", "the sum is off", 12),
        ("malformed document", "a row has a field too many", 4),
        ("malformed document", "no number", 4),
        ("malformed document", "a quote stays open", 3),
        ("malformed document", "a line is neither section nor key", 4),
        ("malformed document", "cut off", 3),
        ("missing field", "the field is not there", 6),
    ]),
    "render": (render, 700, {"reports": 6, "mail": 4}, [
        ("missing variable", "a variable is not given", 12),
        ("malformed template", "a placeholder stays open", 6),
        ("render mismatch", "another text was promised", 10),
    ]),
}


def job(kind, place, error, flaw):
    """The job at this place of its kind, and the first words of its error if it must fail."""
    make, _, queues, _ = KINDS[kind]
    dice = Dice(f"{kind} {place}")
    tenths = [queue for queue, share in queues.items() for _ in range(share)]
    queue = dice.pick(tenths)
    line = {"kind": kind, "queue": queue, "args": make(dice, queue, flaw)}
    priority = dice.pick([1, 2, 2, 2, 2, 2, 2, 3, 3, 4])
    if priority != 2:
        line["priority"] = priority
    if dice.below(40) == 0:
        line["tags"] = [dice.pick(TAGS)]
    if dice.below(80) == 0:
        line["metadata"] = {"trace": f"{dice.below(16 ** 6):06x}"}
    return line, error


def jobs():
    made = []
    for kind, (_, count, _, failures) in KINDS.items():
        flaws = [(error, flaw) for error, flaw, n in failures for _ in range(n)]
        flaws += [(None, None)] * (count - len(flaws))
        for place, (error, flaw) in enumerate(Dice(f"flaws of {kind}").shuffled(flaws)):
            made.append(job(kind, place, error, flaw))
    return Dice("order").shuffled(made)


def expected(made):
    def shares(key, names):
        return {name: {
            "jobs": sum(1 for line, _ in made if key(line) == name),
            "fail": sum(1 for line, error in made if key(line) == name and error),
        } for name in names}

    lines_by_error = {}
    for number, (_, error) in enumerate(made, start=1):
        if error:
            lines_by_error.setdefault(error, []).append(number)
    return {
        "jobs": len(made),
        "fail": sum(len(lines) for lines in lines_by_error.values()),
        "kinds": shares(lambda line: line["kind"], KINDS),
        "queues": shares(lambda line: line["queue"], QUEUES),
        "priorities": shares(lambda line: str(line.get("priority", 2)), ["1", "2", "3", "4"]),
        "failing_lines": dict(sorted(lines_by_error.items())),
    }


def expected_text(facts):
    """JSON with one short line for each fact, so that a person and a diff can read it."""
    def entry(key, value):
        if not isinstance(value, dict):
            return f"  {json.dumps(key)}: {json.dumps(value)}"
        inner = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
        return f"  {json.dumps(key)}: {{\n{inner}\n  }}"

    return "{\n" + ",\n".join(entry(key, value) for key, value in facts.items()) + "\n}\n"


def main():
    made = jobs()
    lines = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line, _ in made)
    files = {"jobs.ndjson": "".join(line + "\n" for line in lines), "EXPECTED.json": expected_text(expected(made))}
    if sys.argv[1:] == ["--check"]:
        stale = [name for name, text in files.items()
                 if not (HERE / name).exists() or (HERE / name).read_bytes() != text.encode()]
        sys.exit(f"not what generate.py writes: {', '.join(stale)}" if stale else 0)
    if sys.argv[1:]:
        sys.exit(__doc__)
    for name, text in files.items():
        (HERE / name).write_bytes(text.encode())


if __name__ == "__main__":
    main()
