package importer

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// formatBytes is how many bytes at the beginning of a file are needed to recognize its format.
// The format tar needs most.
const formatBytes = 512

// foreignFormats are formats that are not text in UTF-8, or not delimited text. Each is recognized
// by bytes at an offset, and has an advice. The first one that matches counts.
var foreignFormats = []struct {
	name   string
	offset int
	magic  string
	advice string
	// text is set if files of the format are text in UTF-8.
	text bool
}{
	{"an Excel workbook (xlsx) or another file of an office program", 30, "[Content_Types].xml", "save the sheet as CSV in UTF-8", false},
	{"an Excel workbook (xlsx) or another file of an office program", 30, "_rels/.rels", "save the sheet as CSV in UTF-8", false},
	{"an OpenDocument file", 30, "mimetypeapplication/vnd.oasis", "save the sheet as CSV in UTF-8", false},
	{"an old Excel workbook (xls)", 0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "save the sheet as CSV in UTF-8", false},
	{"a zip archive", 0, "PK\x03\x04", "unzip -p prints what is in it", false},
	{"an empty zip archive", 0, "PK\x05\x06", "", false},
	{"a tar archive", 257, "ustar", "tar -xOf prints what is in it", false},
	{"compressed with bzip2", 4, "1AY&SY", "bzip2 -dc unpacks it", true},
	{"compressed with xz", 0, "\xfd7zXZ\x00", "xz -dc unpacks it", false},
	{"compressed with lz4", 0, "\x04\x22\x4d\x18", "lz4 -dc unpacks it", false},
	{"compressed with compress", 0, "\x1f\x9d", "uncompress -c unpacks it", false},
	{"compressed with lzip", 0, "LZIP", "lzip -dc unpacks it", false},
	{"compressed with snappy", 0, "\xff\x06\x00\x00sNaPpY", "", false},
	{"compressed twice, with gzip inside", 0, "\x1f\x8b", "unpack it once", false},
	{"compressed twice, with zstd inside", 0, "\x28\xb5\x2f\xfd", "unpack it once", false},
	{"a 7z archive", 0, "7z\xbc\xaf\x27\x1c", "7z x -so prints what is in it", false},
	{"a rar archive", 0, "Rar!\x1a\x07", "unrar p -inul prints what is in it", false},
	{"a Parquet file", 0, "PAR1", "DuckDB and other programs write it as CSV", false},
	{"an ORC file", 0, "ORC", "write it as CSV", false},
	{"an Avro file", 0, "Obj\x01", "write it as CSV", false},
	{"an Arrow file", 0, "ARROW1", "write it as CSV", false},
	{"a Feather file", 0, "FEA1", "write it as CSV", false},
	{"an SQLite database", 0, "SQLite format 3\x00", "sqlite3 -csv writes the result of a query", false},
	{"a dump of Redis", 0, "REDIS0", "start a Redis on it, and use skein import redis", false},
	{"an archive of pg_dump", 0, "PGDMP", "psql with \\copy (…) TO … CSV HEADER writes the result of a query", false},
	{"a PDF document", 0, "%PDF-", "", true},
	{"an HTML page", 0, "<!DOCTYPE html", "it may be an error page that was downloaded instead of the data", true},
	{"an HTML page", 0, "<!doctype html", "it may be an error page that was downloaded instead of the data", true},
	{"an HTML page", 0, "<html", "it may be an error page that was downloaded instead of the data", true},
	{"an XML document", 0, "<?xml", "write it as CSV", true},
	{"text in UTF-32", 0, "\xff\xfe\x00\x00", "iconv -f UTF-32 -t UTF-8 converts it", false},
	{"text in UTF-32", 0, "\x00\x00\xfe\xff", "iconv -f UTF-32 -t UTF-8 converts it", false},
	{"text in UTF-16", 0, "\xff\xfe", "iconv -f UTF-16 -t UTF-8 converts it", false},
	{"text in UTF-16", 0, "\xfe\xff", "iconv -f UTF-16 -t UTF-8 converts it", false},
}

// checkFormat returns an error unless the first bytes of a file, after unpacking, are delimited
// text in UTF-8.
func checkFormat(begin []byte) error {
	for _, f := range foreignFormats {
		if len(begin) <= f.offset || !bytes.HasPrefix(begin[f.offset:], []byte(f.magic)) {
			continue
		}
		// A row may begin with the same letters as a binary format, such as ORC.
		if f.text || !isText(begin) {
			return formatError(f.name, f.advice)
		}
	}
	switch {
	case len(begin) >= 4 && begin[0] != 0 && begin[1] == 0 && begin[2] != 0 && begin[3] == 0:
		return formatError("text in UTF-16", "iconv -f UTF-16LE -t UTF-8 converts it")
	case len(begin) >= 4 && begin[0] == 0 && begin[1] != 0 && begin[2] == 0 && begin[3] != 0:
		return formatError("text in UTF-16", "iconv -f UTF-16BE -t UTF-8 converts it")
	}
	return nil
}

// isText reports whether the first bytes of a file are text in UTF-8. The last character may be
// incomplete.
func isText(begin []byte) bool {
	for len(begin) > 0 {
		r, size := utf8.DecodeRune(begin)
		isInvalid := r == utf8.RuneError && size == 1 && utf8.FullRune(begin)
		isControl := r < ' ' && !strings.ContainsRune("\t\n\v\f\r", r)
		if isInvalid || isControl {
			return false
		}
		begin = begin[size:]
	}
	return true
}

// formatError says that the file has another format, and what to do about it.
func formatError(name, advice string) error {
	if advice != "" {
		advice = ": " + advice
	}
	return fmt.Errorf("the file is %s, and delimited text in UTF-8 is read here, plain or compressed with gzip or zstd%s", name, advice)
}
