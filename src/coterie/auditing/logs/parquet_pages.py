"""The pages of a Parquet file, from their headers, before any page is unpacked.

The metadata at the end of a file states the unpacked size of its columns, and a hostile file understates it. The header
of each page is decisive, because a reader allocates what it states. Headers are structures of Thrift's compact
protocol: fields with a type and a number, with integers of variable length.
"""

from typing import Any

from coterie.cohorts.log_size import check_size
from coterie.errors import InputError

_VALUE_BYTES = 8  # minimum memory of an unpacked value
_PAGE_BYTES = 100  # counted for an empty page
_DEEPEST = 8  # maximum nesting of structures

# Field numbers in a page's header and in its structures.
_UNPACKED, _PACKED = 2, 3
_KINDS = {5: (1, 2), 7: (1, 2), 8: (1, 4)}  # data page, dictionary, data page v2: number of values, encoding
_FRONT_CODED = 7  # DELTA_BYTE_ARRAY: each value repeats the beginning of the previous one


def check_pages(content: bytes, metadata: Any, limit: int) -> None:  # noqa: ANN401  (pyarrow's)
    """Raise :class:`LogTooLarge` if the pages of all columns unpack to more than ``limit`` bytes."""
    size = 0
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            value = max(_VALUE_BYTES, metadata.schema.column(number).length)
            start = column.data_page_offset
            if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
                start = column.dictionary_page_offset
            end = start + column.total_compressed_size
            while start < end:
                header = _Thrift(content, start)
                fields = header.structure()
                unpacked, packed = fields.get(_UNPACKED), fields.get(_PACKED)
                if not (isinstance(unpacked, int) and isinstance(packed, int) and unpacked >= 0 and packed >= 0):
                    raise InputError("not a readable Parquet file: a page has no size")
                size += _PAGE_BYTES + unpacked
                for kind, (counted, encoded) in _KINDS.items():
                    inner = fields.get(kind)
                    if isinstance(inner, dict):
                        size += value * max(0, inner.get(counted, 0))
                        if inner.get(encoded) == _FRONT_CODED:
                            raise InputError(
                                "a column has the encoding DELTA_BYTE_ARRAY, in which a small file can hold any amount "
                                "of text: write the file with dictionaries instead"
                            )
                check_size(size, limit, at_least=True)
                start = header.position + packed


class _Thrift:
    """A reader of Thrift's compact protocol, starting at a position in a file."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content, self.position = content, position

    def structure(self, depth: int = 0) -> dict[int, Any]:
        """Return the integer and structure fields of a structure by number; other fields are skipped."""
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._integer()
            fields[number] = self._value(kind & 15, depth)
        return fields

    def _byte(self) -> int:
        if not 0 <= self.position < len(self._content):
            raise InputError("not a readable Parquet file: a page is outside the file")
        self.position += 1
        return self._content[self.position - 1]

    def _length(self) -> int:
        """Return an unsigned integer: seven bits in each byte, the lowest first."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise InputError("not a readable Parquet file: a number in a page's header has no end")

    def _integer(self) -> int:
        """Return a signed integer: 0, -1, 1, -2 and so on."""
        value = self._length()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 - whatever a Thrift field can hold
        match kind:
            case 1 | 2:  # true and false take no further bytes
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._integer()
            case 7:
                self.position += 8
                return None
            case 8:
                length = self._length()
                self.position += length
                return None
            case 12 if depth < _DEEPEST:
                return self.structure(depth + 1)
        raise InputError("not a readable Parquet file: a page's header is invalid")
