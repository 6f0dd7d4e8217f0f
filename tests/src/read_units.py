"""Reads the record log of a cleanly stopped Loom directory as engine/FORMAT.md describes it, and shares no code with the engine.

    read_units.py DIR

Prints a line for each record: address, source, arrival and payload in hexadecimal; then a line of JSON that counts what was met. The first
byte that is not as the page says ends it with an error. Each chunk is rebuilt and must have its checksum, and each zone must be that of the
values.
"""

import json
import math
import struct
import sys
from collections import Counter
from itertools import accumulate, chain, pairwise
from pathlib import Path

from pyarrow import Codec

RECORDS, SLOTS, UNITS, PIECES = 0, 3, 5, 6
UNIT_CHUNKS = 16
ROWS_ALONE, ROWS_TOGETHER = 1024, 256
CHUNK_MARK, UNIT_MARK, ZONES_MARK, TAIL_MARK, SLOT_MARK = 0x4B48434C, 0x554D4F4C, 0x534E4F5A, 0x4C494154, 0x4C425244
DIRECTORY_MARK = 0x534E4D434D4F4F4C
SIGNED, FLOAT, LENGTH = 1, 2, 3
FILLER = bytes(8)
WORD = (1 << 64) - 1
TOP = 1 << 63


class Wrong(Exception):
    """The error of a byte that is not as the page says."""


def ensure(is_so, *what):
    """Fail unless the page and the bytes agree."""
    if not is_so:
        raise Wrong(" ".join(map(str, what)))


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def signed(word):
    return word - (1 << 64) if word & TOP else word


def word_of(form, number):
    """Return the bits of a float of 8 bytes, `<d`, or of 4, `<f`."""
    return int.from_bytes(struct.pack(form, number), "little")


def float_of(form, word):
    return struct.unpack(form, word.to_bytes(8, "little")[: struct.calcsize(form)])[0]


def align(n):
    return -n % 8


class Cursor:
    """Bytes from which numbers are taken one after the other."""

    def __init__(self, data):
        """Begin with the first byte."""
        self.data, self.at = data, 0

    def take(self, n):
        """Return the next bytes."""
        taken = self.data[self.at : self.at + n]
        ensure(len(taken) == n, "the bytes end at", len(self.data), "within", n, "from", self.at)
        self.at += n
        return taken

    def fixed(self, width):
        """Return a number of so many bytes."""
        return int.from_bytes(self.take(width), "little")

    def leb(self):
        """Return a number without a width."""
        number = shift = 0
        while True:
            byte = self.fixed(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def zigzag(self):
        """Return a signed number without a width."""
        coded = self.leb()
        return (coded >> 1) ^ -(coded & 1)

    def rest(self, zeroes):
        """Check that only so many zeroes are left."""
        ensure(self.data[self.at :] == bytes(zeroes), len(self.data) - self.at, "bytes are left, not", zeroes, "zeroes")

    def bits(self, n, width):
        """Return n numbers of so many bits."""
        packed = int.from_bytes(self.take((n * width + 7) // 8), "little")
        mask = (1 << width) - 1
        return [packed >> (i * width) & mask for i in range(n)]

    def packed(self, n):
        """Return n numbers behind their width in bits."""
        width = self.fixed(1)
        ensure(width <= 57 or width == 64, "width", width)
        return self.bits(n, width)


def spread(bits, mask):
    """Move the lowest bits to the places that the mask has."""
    word = 0
    while mask:
        low = mask & -mask
        word |= low * (bits & 1)
        bits >>= 1
        mask ^= low
    return word


def summed(first, steps):
    return [number & WORD for number in accumulate(chain([first], steps))]


class Reader:
    """A Loom directory; `met` counts what its units consist of."""

    def __init__(self, directory):
        """Load the sizes and the end of the log."""
        self.directory, self.met = Path(directory), Counter()
        described = json.loads((self.directory / "loom.json").read_bytes())
        ensure(described["format"] in (4, 5), "format", described["format"])
        self.shares_strings = described["format"] == 5
        self.uuid = bytes.fromhex(described["uuid"].replace("-", ""))
        self.chunk_bytes, self.segment_bytes = described["chunk_bytes"], described["segment_bytes"][RECORDS]
        self.unit_bytes = UNIT_CHUNKS * self.chunk_bytes
        self.read_slot()

    def verify(self, checksum, log, address, data, what):
        """Compare a checksum with that of the bytes."""
        actual = crc32c(self.uuid + struct.pack("<BQ", log, address) + data)
        ensure(actual == checksum, f"{what} at {address} has the checksum {checksum:08x}, its bytes have {actual:08x}")
        self.met["checksums"] += 1

    def read_slot(self):
        """Load the newest slot of `durable`."""
        data = (self.directory / "durable").read_bytes()
        slots = []
        for number in range(2):
            slot = data[4096 * number : 4096 * (number + 1)]
            mark, checksum, sequence = struct.unpack_from("<IIQ", slot)
            ensure(mark == SLOT_MARK, "slot", number, "has no mark")
            self.verify(checksum, SLOTS, number, slot[8:], "a slot")
            slots.append((sequence, slot))
        _, slot = max(slots)
        ensure(slot[16:32] == self.uuid and struct.unpack_from("<I", slot, 40) == (1,), "the directory was not stopped cleanly")
        self.end, self.begin, self.end_checksum = struct.unpack_from("<QQI", slot, 48)
        (self.encoded,) = struct.unpack_from("<Q", slot, 3256)
        ensure(self.encoded % self.unit_bytes == 0, "encoded is", self.encoded)

    def records(self):
        """Yield address, source, arrival and payload of each record."""
        for address, chunk in self.chunks():
            if address >= self.begin:
                yield from self.records_of(address, chunk)

    def records_of(self, address, chunk):
        """Yield the records of a chunk, once it is verified."""
        if not any(chunk):
            self.met["empty chunks"] += 1
            return
        is_whole = len(chunk) == self.chunk_bytes
        if is_whole:
            checksum, mark = struct.unpack("<II", chunk[-8:])
            ensure(mark == CHUNK_MARK, "the chunk at", address, "has no mark")
            self.verify(checksum, RECORDS, address, chunk[:-8], "a chunk")
        end = len(chunk) - 8 if is_whole else len(chunk)
        (anchor,) = struct.unpack_from("<q", chunk)
        at = 8
        while at + 8 <= end:
            source, length, delta = struct.unpack_from("<HHI", chunk, at)
            if source:
                yield address + at, source, anchor + delta, chunk[at + 8 : at + 8 + length]
                at += 8 + length + align(length)
            elif (length, delta) == (1, 0):
                (anchor,) = struct.unpack_from("<q", chunk, at + 8)
                self.met["anchors"] += 1
                at += 16
            else:
                ensure((length, delta) == (0, 0), "an entry of no kind at", address + at)
                break

    def chunks(self):
        """Yield the address and the bytes of each chunk."""
        paths = {}
        for path in (self.directory / "records").iterdir():
            first, generation = path.name.split(".", 1)
            if generation.isdigit():
                paths[int(first)] = max((int(generation), path), paths.get(int(first), (-1, path)))
        for first, (_, path) in sorted(paths.items()):
            yield from self.segment(first, path.read_bytes())
        if self.end > self.encoded:
            yield from self.tail()

    # Segments

    def segment(self, first, data):
        """Yield the chunks of a segment, whose units are found by their lengths."""
        self.met["segments"] += 1
        units = min(self.segment_bytes, self.encoded - first) // self.unit_bytes
        places = [0]
        while len(places) <= units and places[-1] < len(data):
            mark, _, length = struct.unpack_from("<III", data, places[-1])
            ensure(mark == UNIT_MARK and length % 8 == 0, "no unit at", places[-1])
            places.append(places[-1] + length)
        zones = []
        for number, (start, end) in enumerate(pairwise(places)):
            address = first + number * self.unit_bytes
            unit = Unit(self, address, data[start:end])
            zones.append(unit.zones)
            for chunk, content in enumerate(unit.chunks):
                yield address + chunk * self.chunk_bytes, content
        if len(zones) < units:
            self.met["segments that a gap ends"] += 1
        elif first + self.segment_bytes <= self.encoded:
            self.directory_of(first, data, places)
            self.segment_zones(first, data, places[-1], zones)

    def directory_of(self, first, data, places):
        """Compare the directory with the places that the lengths give."""
        checksum, units, mark = struct.unpack("<IIQ", data[-16:])
        ensure(mark == DIRECTORY_MARK, "the segment at", first, "has no directory")
        numbers = data[-16 - 8 * (units + 1) : -16]
        self.verify(checksum, UNITS, first, numbers, "a directory")
        ensure(list(struct.unpack(f"<{units + 1}Q", numbers)) == places, "the directory names other places than the lengths", places)
        self.met["directories"] += 1

    def segment_zones(self, first, data, start, units):
        """Compare the zones at the end of a segment with those of its units."""
        zones = data[start : -16 - 8 * (len(units) + 1)]
        if not zones:
            ensure(not any(units), "the segment at", first, "has no zones")
            return
        cursor = Cursor(zones)
        mark, checksum, count, zero = struct.unpack("<IIII", cursor.take(16))
        ensure((mark, count, zero) == (ZONES_MARK, len(units), 0), "no zones at", start)
        self.verify(checksum, UNITS, first, zones[8:], "the zones of a segment")

        def some_units(cursor):
            words = self.block(cursor, (count + 63) // 64)
            return [number for number in range(count) if words[number // 64] >> number % 64 & 1]

        ensure(some_units(cursor) == [number for number, unit in enumerate(units) if unit is not None], "other units are in columns")
        streams, members = {}, {}
        for _ in range(cursor.leb()):
            source, shape = cursor.leb(), Shape(cursor)
            told = Cursor(cursor.take(cursor.leb()))
            present = some_units(told)
            fields = []
            for field in shape.fields:
                flags = self.block(told, len(present))
                lows = highs = []
                if valued := sum(flag >> 1 for flag in flags):
                    lows, highs = self.block(told, valued), self.block(told, valued)
                spans = iter(zip(lows, highs, strict=True))
                fields.append([(flag & 1, tuple(map(field.key, next(spans))) if flag & 2 else None) for flag in flags])
            for number, *zone in zip(present, *fields, strict=True):
                streams[source, shape.coded, number] = zone
            told.rest(0)
        for _ in range(cursor.leb()):
            source, shape = cursor.leb(), Shape(cursor)
            told = Cursor(cursor.take(cursor.leb()))
            for number in some_units(told):
                members.setdefault((shape.coded, number), []).append(source)
            told.rest(0)
        cursor.rest(8 + align(cursor.at))
        in_heads, members_in_heads = {}, {}
        for number, unit in enumerate(units):
            for source, shape, zone, sources in unit or []:
                in_heads[source, shape, number] = zone
                if sources:
                    members_in_heads[shape, number] = sources
        ensure(streams == in_heads, "a segment has other zones than its units")
        ensure(members == members_in_heads, "a segment has other members than its units")
        self.met["segments with zones"] += 1

    # Blocks

    def block(self, cursor, n, width=8, members=None):
        """Return n numbers as words: of floats the bits in `width` bytes. `members` has the rows of each member of a family."""
        encoding = cursor.fixed(1)
        self.met[f"encoding {encoding}"] += 1
        match encoding:
            case 0:
                numbers = [cursor.zigzag()] * n
            case 1:
                least = cursor.zigzag()
                numbers = [least + beyond for beyond in cursor.packed(n)]
            case 2:
                first, least = cursor.zigzag(), cursor.zigzag()
                numbers = summed(first, (least + beyond for beyond in cursor.packed(n - 1)))
            case 3:
                runs = cursor.leb()
                values, lengths = self.block(cursor, runs), self.block(cursor, runs)
                numbers = [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]
            case 4:
                different = self.block(cursor, cursor.leb())
                numbers = [different[place] for place in cursor.packed(n)]
            case 5:
                same, mask = cursor.fixed(8), cursor.fixed(8)
                numbers = [same | spread(bits, mask) for bits in cursor.bits(n, mask.bit_count())]
            case 6:
                exponent = cursor.fixed(1)
                scaled = [signed(whole) / 10**exponent for whole in self.block(cursor, n, 8, members)]
                numbers = [word_of("<d" if width == 8 else "<f", number) for number in scaled]
            case 7:
                ensure(members is not None, "encoding 7 in the row group of a stream that stands alone")
                firsts, least = self.block(cursor, len(members)), cursor.zigzag()
                steps = iter(cursor.packed(n - len(members)))
                numbers = []
                for first, rows in zip(firsts, members, strict=True):
                    numbers += summed(first, (least + next(steps) for _ in range(rows - 1)))
            case _:
                raise Wrong(f"encoding {encoding}")
        ensure(len(numbers) == n, len(numbers), "numbers, not", n)
        return [number & WORD for number in numbers]

    # Tail

    def tail(self):
        """Yield the chunks of the unit that begins at `encoded`, and the part of a chunk with which the log ends."""
        data = (self.directory / "tail").read_bytes()
        unit = bytearray(self.unit_bytes)
        held = set()
        for start in (0, 2 * self.unit_bytes):
            cursor = Cursor(data[start : start + 2 * self.unit_bytes])
            while cursor.at + 24 <= len(cursor.data):
                at = cursor.at
                mark, checksum, length, address = struct.unpack("<IIQQ", cursor.take(24))
                if mark != TAIL_MARK or address // self.unit_bytes != self.encoded // self.unit_bytes:
                    break
                content = cursor.take(length)
                self.verify(checksum, PIECES, address, cursor.data[at + 8 : cursor.at], "a piece of the tail")
                ensure((address % self.chunk_bytes) + length <= self.chunk_bytes, "a piece reaches into the next chunk")
                place = address - self.encoded
                unit[place : place + length] = content
                held.update(range(place, place + length, 8))
                self.met["pieces of the tail"] += 1
        ensure(held.issuperset(range(0, self.end - self.encoded, 8)), "the tail has not all bytes")
        last = self.end - self.end % self.chunk_bytes
        for address in range(self.encoded, self.end, self.chunk_bytes):
            place = address - self.encoded
            yield address, bytes(unit[place : min(place + self.chunk_bytes, self.end - self.encoded)])
        self.verify(self.end_checksum, RECORDS, last, bytes(unit[last - self.encoded : self.end - self.encoded]), "the end of the log")


class Field:
    """Where a field stands: the kind and the number of its piece, and the piece and the bit that say whether it is NULL."""

    def __init__(self, cursor, pieces):
        """Take the description of a field."""
        coded = cursor.leb()
        self.piece, self.is_text = coded >> 2, bool(coded & 2)
        self.width, self.kind = pieces[self.piece]
        self.null = divmod(cursor.leb(), 64) if coded & 1 else None

    def key(self, value):
        """Return the key of a value, of floats as f64. A text or a string is given as its key."""
        if self.is_text or self.kind == LENGTH:
            return value
        if self.kind == SIGNED:
            return value ^ TOP
        if self.kind == FLOAT:
            number = float_of("<d", value)
            value = word_of("<d", float("nan") if math.isnan(number) else number + 0.0)
            return value ^ (WORD if value & TOP else TOP)
        return value

    def zone(self, cursor):
        """Take whether the field is NULL in a record, and the least and the greatest key of the others, if there are any."""
        coded = cursor.fixed(1)
        if not coded & 0x80:
            return coded >> 6 & 1, None
        first, second = cursor.take((coded & 7) + 1), cursor.take((coded >> 3 & 7) + 1)
        if self.is_text or self.kind in (FLOAT, LENGTH):
            low, differing = (int.from_bytes(number.ljust(8, b"\0"), "big") for number in (first, second))
            high = low ^ differing
        else:
            low, beyond = int.from_bytes(first, "little"), int.from_bytes(second, "little")
            if self.kind == SIGNED:
                low = self.key(((low >> 1) ^ -(low & 1)) & WORD)
            high = low + beyond
        return coded >> 6 & 1, (low, high)


class Shape:
    """How the payloads of a layout are cut into pieces."""

    def __init__(self, cursor):
        """Take a shape."""
        start = cursor.at
        coded = cursor.leb()
        self.pieces = [(byte & 15, byte >> 4) for byte in cursor.take(coded >> 1)]
        self.has_rest = coded & 1
        told = Cursor(cursor.take(cursor.leb()))
        self.fields = []
        while told.at < len(told.data):
            self.fields.append(Field(told, self.pieces))
        self.coded = cursor.data[start : cursor.at]
        self.lengths = [number for number, (_, kind) in enumerate(self.pieces) if kind == LENGTH]
        # One of arrivals, one for each piece, one of how many bytes follow, and the strings.
        self.blocks = 1 + len(self.pieces) + self.has_rest + bool(self.lengths or self.has_rest)


class Stream:
    """The records of one source and one layout: how many each chunk holds, and the rows in their order."""

    def __init__(self, source, counts):
        """Begin without rows."""
        self.source, self.counts, self.rows = source, counts, []


class Unit:
    """A unit, rebuilt to its chunks; `zones` is None for a raw unit."""

    def __init__(self, reader, address, data):
        """Rebuild the chunks."""
        self.reader, self.address, self.data = reader, address, data
        self.sections, self.zones = 0, None
        cursor = self.cursor = Cursor(data)
        _, checksum, length, head = struct.unpack("<IIII", cursor.take(16))
        form, count, self.streams_told, zero = struct.unpack("<BBHI", cursor.take(8))
        ensure((length, count, zero) == (len(data), UNIT_CHUNKS, 0), "a strange head at", address)
        reader.verify(checksum, UNITS, address, data[8:head], "the head of a unit")
        ensure(length <= reader.unit_bytes + 24, "the unit at", address, "is longer than its chunks")
        reader.met[("raw units", "units in columns")[form]] += 1
        if form == 0:
            chunks = data[head:].ljust(reader.unit_bytes, b"\0")
            self.chunks = [chunks[at : at + reader.chunk_bytes] for at in range(0, reader.unit_bytes, reader.chunk_bytes)]
            return
        cursor.data = data[:head]
        self.body = head
        self.zones = []
        self.read_columns()

    def section(self):
        """Take the description of the next section, and return its bytes."""
        length, checksum = self.cursor.leb(), self.cursor.fixed(4)
        content = self.data[self.body : self.body + length]
        ensure(len(content) == length, "a section is longer than its unit")
        self.reader.verify(checksum, UNITS, self.address + 1 + self.sections, content, "a section")
        self.body += length
        self.sections += 1
        return content

    def read_columns(self):
        """Rebuild the chunks from streams."""
        reader, cursor = self.reader, self.cursor
        checksums = struct.unpack(f"<{UNIT_CHUNKS}I", cursor.take(4 * UNIT_CHUNKS))
        with_anchors = cursor.take(UNIT_CHUNKS)
        orders = [self.section() for _ in range(UNIT_CHUNKS)]
        streams = []
        for _ in range(cursor.leb()):
            streams.append(self.alone())
        reader.met["streams that stand alone"] += len(streams)
        while len(streams) < self.streams_told:
            streams += self.family()
        cursor.rest(align(cursor.at))
        ensure(not any(self.data[self.body :]) and len(self.data) - self.body < 8, "bytes behind the last section")
        ensure(len(streams) == self.streams_told, len(streams), "streams, not", self.streams_told)
        left = [iter(stream.rows) for stream in streams]
        self.chunks = []
        for chunk, (checksum, order) in enumerate(zip(checksums, orders, strict=True)):
            count = sum(stream.counts[chunk] for stream in streams)
            if not count:
                ensure(not order, "an empty chunk has an order")
                trailer = struct.pack("<II", checksum, CHUNK_MARK) if checksum else FILLER
                self.chunks.append(bytes(reader.chunk_bytes - 8) + trailer)
                continue
            order = Cursor(order)
            numbers = reader.block(order, count)
            order.rest(8)
            per_stream = Counter(numbers)
            ensure(all(per_stream[n] == stream.counts[chunk] for n, stream in enumerate(streams)), "an order has other counts")
            rows = [(streams[n].source, *next(left[n])) for n in numbers]
            content, has_anchors = rebuilt(rows)
            ensure(has_anchors == with_anchors[chunk], "chunk", chunk, "of the unit at", self.address, "has other anchors")
            ensure(len(content) <= reader.chunk_bytes - 8, "the records of a chunk are more than it")
            self.chunks.append(content.ljust(reader.chunk_bytes - 8, b"\0") + struct.pack("<II", checksum, CHUNK_MARK))

    def alone(self):
        """Take a stream that stands alone."""
        cursor = self.cursor
        source, shape = cursor.leb(), Shape(cursor)
        stream = Stream(source, [cursor.leb() for _ in range(UNIT_CHUNKS)])
        rows = 0
        for chunk, count in enumerate(stream.counts):
            rows += count
            if rows >= ROWS_ALONE or (rows and chunk == UNIT_CHUNKS - 1):
                stream.rows += self.row_group(shape, rows, None)
                rows = 0
        self.take_zone(shape, source, stream.rows, [])
        return stream

    def family(self):
        """Take a family, and return its members."""
        cursor = self.cursor
        shape = Shape(cursor)
        sources = list(accumulate(cursor.leb() for _ in range(cursor.leb())))
        told = Cursor(cursor.take(cursor.leb()))
        counts = self.reader.block(told, UNIT_CHUNKS * len(sources))
        told.rest(8)
        members = [Stream(source, counts[UNIT_CHUNKS * n :][:UNIT_CHUNKS]) for n, source in enumerate(sources)]
        done = 0
        while done < len(members):
            group = members[done : done + cursor.leb()]
            each = [sum(member.counts) for member in group]
            done += len(group)
            is_full = sum(each) >= ROWS_TOGETHER
            ensure((is_full or done == len(members)) and sum(each[:-1]) < ROWS_TOGETHER, "a row group has members", each)
            rows = iter(self.row_group(shape, sum(each), each))
            for member, count in zip(group, each, strict=True):
                member.rows = [next(rows) for _ in range(count)]
        self.take_zone(shape, 0, [row for member in members for row in member.rows], sources)
        self.reader.met["families"] += 1
        self.reader.met["members"] += len(members)
        return members

    def row_group(self, shape, n, members):
        """Return n rows: of each the arrival, the payload, the numbers of its pieces and its strings."""
        reader = self.reader
        columns, strings = [], None
        widths = [8, *(width for width, _ in shape.pieces), 8]
        done = 0
        while done < shape.blocks:
            count = self.cursor.leb()
            part = Cursor(self.section())
            done += count
            is_last = done == shape.blocks
            numbers = shape.blocks - bool(shape.lengths or shape.has_rest)
            while len(columns) < min(done, numbers):
                columns.append(reader.block(part, n, widths[len(columns)], members))
            if is_last and numbers < shape.blocks:
                strings = self.strings(part, shape, columns)
            part.rest(8 if is_last else 0)
            reader.met["parts"] += 1
        reader.met["row groups"] += 1
        arrivals, pieces = columns[0], columns[1 : 1 + len(shape.pieces)]
        rows = []
        for row in range(n):
            numbers = [column[row] for column in pieces]
            payload = b"".join(number.to_bytes(8, "little")[:width] for number, (width, _) in zip(numbers, shape.pieces, strict=True))
            texts = [column[row] for column in strings or []]
            rows.append((signed(arrivals[row]), payload + b"".join(texts), numbers, texts))
        return rows

    def strings(self, part, shape, columns):
        """Return the strings of all rows, for each length that announces some."""
        announced = [columns[1 + piece] for piece in shape.lengths]
        if shape.has_rest:
            announced.append(columns[1 + len(shape.pieces)])
        strings = []
        for lengths in announced:
            form = part.fixed(1)
            if form < 2:
                strings.append(self.strings_of(form, part, lengths))
                continue
            ensure(self.reader.shares_strings, "rows share strings in a directory of format 4")
            self.reader.met["shared strings"] += 1
            count = part.leb()
            different = self.reader.block(part, count, 8, None)
            different = self.strings_of(part.fixed(1), part, different)
            shared = [different[number] for number in self.reader.block(part, len(lengths), 8, None)]
            ensure([len(text) for text in shared] == lengths, "shared strings are not as long as the rows say")
            strings.append(shared)
        return strings

    def strings_of(self, form, part, lengths):
        """Return strings of these lengths, which lie side by side."""
        self.reader.met[("strings as they are", "strings in a frame")[form]] += 1
        content = part.take(sum(lengths)) if form == 0 else part.take(part.leb())
        if form == 1:
            content = Codec("zstd").decompress(content, sum(lengths), asbytes=True)
        texts = Cursor(content)
        strings = [texts.take(length) for length in lengths]
        texts.rest(0)
        return strings

    def take_zone(self, shape, source, rows, members):
        """Take the zones of a stream or family, and check that they are those of its rows."""
        zones = []
        for field in shape.fields:
            zone = field.zone(self.cursor)
            nulls, low, high = 0, WORD + 1, -1
            for _, _, numbers, texts in rows:
                if field.null and numbers[field.null[0]] >> field.null[1] & 1:
                    nulls = 1
                    continue
                value = numbers[field.piece]
                if field.kind == FLOAT and field.width == 4:
                    value = word_of("<d", float_of("<f", value))
                if field.kind == LENGTH:
                    text = texts[shape.lengths.index(field.piece)]
                    value = int.from_bytes(text[:8].ljust(8, b"\0"), "big")
                elif field.is_text:
                    value = int.from_bytes(value.to_bytes(8, "little")[: field.width].ljust(8, b"\0"), "big")
                key = field.key(value)
                low, high = min(low, key), max(high, key)
            ensure(zone == (nulls, (low, high) if high >= 0 else None), "source", source, "has another zone in", self.address, zone)
            zones.append(zone)
            self.reader.met["zones"] += 1
        self.zones.append((source, shape.coded, zones, members))


def rebuilt(rows):
    """Return the bytes of a chunk up to its filler, and whether anchors stand between its records."""
    anchor = rows[0][1]
    content, has_anchors = bytearray(struct.pack("<q", anchor)), 0
    for source, arrival, payload, *_ in rows:
        if arrival - anchor >= 1 << 32:
            anchor, has_anchors = arrival, 1
            content += struct.pack("<HHIq", 0, 1, 0, anchor)
        content += struct.pack("<HHI", source, len(payload), arrival - anchor) + payload + bytes(align(len(payload)))
    return bytes(content), has_anchors


def main():
    reader = Reader(sys.argv[1])
    lines = []
    for address, source, arrival, payload in reader.records():
        lines.append(f"{address} {source} {arrival} {payload.hex()}")
    print(*lines, json.dumps(reader.met, sort_keys=True), sep="\n")


main()
