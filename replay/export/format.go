package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/skein-feed/skein/events"
)

// Format is the format of an export.
type Format string

// The formats.
const (
	NDJSON  Format = "ndjson"
	Parquet Format = "parquet"
)

// ErrFormat means that there is no such format.
var ErrFormat = errors.New("export: no such format")

// SchemaVersion is the version of the columns in Parquet and of the objects in NDJSON. It rises
// when the name, type or meaning of a column changes, but not when a column is added.
const SchemaVersion = 1

// The limits of a row group. A row group is in memory until it is written.
const (
	maxGroupRows  = 1 << 17
	maxGroupBytes = 16 << 20
)

// Counts says how many rows or events were written.
type Counts struct {
	Rows uint64
	// Kinds has the number per kind.
	Kinds map[string]uint64
}

// add counts a row or event of a kind.
func (c *Counts) add(kind string) {
	if c.Kinds == nil {
		c.Kinds = map[string]uint64{}
	}
	c.Rows++
	c.Kinds[kind]++
}

// metadataEntry is an entry of the metadata of a Parquet file.
type metadataEntry struct{ key, value string }

// rowWriter writes rows of one type.
type rowWriter[T any] interface {
	// put writes a row. bytes is about how many bytes of memory the row takes.
	put(row *T, bytes int) error
	// close completes the export. It does not close the underlying writer.
	close() error
}

// newRowWriter returns a writer of rows in a format. appendJSON appends a row as a JSON object,
// without the end of the line.
func newRowWriter[T any](
	w io.Writer, f Format, metadata []metadataEntry, appendJSON func([]byte, *T) ([]byte, error),
) (rowWriter[T], error) {
	switch f {
	case NDJSON:
		return &ndjsonWriter[T]{w: w, appendJSON: appendJSON}, nil
	case Parquet:
		options := []parquet.WriterOption{
			parquet.CreatedBy("skein", strconv.Itoa(SchemaVersion), ""),
			parquet.Compression(&parquet.Zstd),
			parquet.KeyValueMetadata("skein.schema", strconv.Itoa(SchemaVersion)),
		}
		for _, m := range metadata {
			options = append(options, parquet.KeyValueMetadata(m.key, m.value))
		}
		return &parquetWriter[T]{w: parquet.NewGenericWriter[T](w, options...)}, nil
	}
	return nil, fmt.Errorf("%w: %q; there are %s and %s", ErrFormat, f, NDJSON, Parquet)
}

// ndjsonWriter writes one line per row.
type ndjsonWriter[T any] struct {
	w          io.Writer
	appendJSON func([]byte, *T) ([]byte, error)
	buf        []byte
}

func (l *ndjsonWriter[T]) put(row *T, _ int) (err error) {
	l.buf, err = l.appendJSON(l.buf[:0], row)
	if err != nil {
		return err
	}
	l.buf = append(l.buf, '\n')
	_, err = l.w.Write(l.buf)
	return err
}

func (l *ndjsonWriter[T]) close() error { return nil }

// batchRows is how many rows a parquetWriter passes to the library at a time.
const batchRows = 256

// parquetWriter writes rows into row groups. It passes rows to the library in batches, which is
// faster than one by one.
type parquetWriter[T any] struct {
	w     *parquet.GenericWriter[T]
	batch []T
	// rows and bytes are the size of the current row group.
	rows, bytes int
}

func (g *parquetWriter[T]) put(row *T, bytes int) error {
	g.batch = append(g.batch, *row)
	g.rows++
	g.bytes += bytes

	isGroupFull := g.rows >= maxGroupRows || g.bytes >= maxGroupBytes
	if isGroupFull || len(g.batch) == batchRows {
		if err := g.writeBatch(); err != nil {
			return err
		}
	}

	if !isGroupFull {
		return nil
	}
	g.rows = 0
	g.bytes = 0
	return g.w.Flush()
}

// writeBatch passes the batch to the library, which keeps it in the current row group.
func (g *parquetWriter[T]) writeBatch() error {
	_, err := g.w.Write(g.batch)
	clear(g.batch) // so that the rows can be freed
	g.batch = g.batch[:0]
	return err
}

func (g *parquetWriter[T]) close() error {
	if err := g.writeBatch(); err != nil {
		return err
	}
	return g.w.Close()
}

// timeLayout is how times are written as text: RFC 3339 in UTC, with six digits after the seconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// appendText appends a string as JSON. It does not escape the characters of HTML.
func appendText(b []byte, s string) []byte {
	// Most strings need no escapes.
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= ' ' && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\'
	}

	if plain {
		return append(append(append(b, '"'), s...), '"')
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) //nolint:errchkjson // a string has an encoding
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// nowText returns the present time in timeLayout.
func nowText() string { return time.Now().UTC().Format(timeLayout) }

// logText returns the id of a log in hexadecimal digits.
func logText(id events.LogID) string { return fmt.Sprintf("%x", id) }
