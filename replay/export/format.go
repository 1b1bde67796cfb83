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

// Format is how an export is written.
type Format string

// The formats.
const (
	NDJSON  Format = "ndjson"
	Parquet Format = "parquet"
)

// ErrFormat is returned for an unknown format.
var ErrFormat = errors.New("export: no such format")

// SchemaVersion is the version of the columns in Parquet and of the objects in NDJSON. It rises when a column changes its name,
// type or meaning, but not when one is added.
const SchemaVersion = 1

// Bounds of a row group, which is held in memory until it is written.
const (
	groupRows  = 1 << 17
	groupBytes = 16 << 20
)

// Counts says how much was written.
type Counts struct {
	Rows uint64
	// Kinds has the number for each kind.
	Kinds map[string]uint64
}

func (c *Counts) add(kind string) {
	if c.Kinds == nil {
		c.Kinds = map[string]uint64{}
	}
	c.Rows++
	c.Kinds[kind]++
}

// pair is an entry of the metadata of a Parquet file.
type pair struct{ key, value string }

// table writes rows of one type.
type table[T any] interface {
	// put writes a row. bytes is its approximate size in memory.
	put(row *T, bytes int) error
	close() error
}

// newTable returns a table that writes rows in a format. line appends a row as a JSON object, without the end of the line.
func newTable[T any](w io.Writer, f Format, metadata []pair, line func([]byte, *T) ([]byte, error)) (table[T], error) {
	switch f {
	case NDJSON:
		return &lines[T]{w: w, line: line}, nil
	case Parquet:
		options := []parquet.WriterOption{
			parquet.CreatedBy("skein", strconv.Itoa(SchemaVersion), ""), parquet.Compression(&parquet.Zstd),
			parquet.KeyValueMetadata("skein.schema", strconv.Itoa(SchemaVersion)),
		}
		for _, m := range metadata {
			options = append(options, parquet.KeyValueMetadata(m.key, m.value))
		}
		return &groups[T]{w: parquet.NewGenericWriter[T](w, options...)}, nil
	}
	return nil, fmt.Errorf("%w: %q; there are %s and %s", ErrFormat, f, NDJSON, Parquet)
}

// lines writes NDJSON.
type lines[T any] struct {
	w    io.Writer
	line func([]byte, *T) ([]byte, error)
	buf  []byte
}

func (l *lines[T]) put(row *T, _ int) (err error) {
	if l.buf, err = l.line(l.buf[:0], row); err != nil {
		return err
	}
	l.buf = append(l.buf, '\n')
	_, err = l.w.Write(l.buf)
	return err
}

func (l *lines[T]) close() error { return nil }

// groups writes Parquet.
type groups[T any] struct {
	w           *parquet.GenericWriter[T]
	batch       []T
	rows, bytes int
}

func (g *groups[T]) put(row *T, bytes int) error {
	g.batch = append(g.batch, *row)
	g.rows++
	g.bytes += bytes
	full := g.rows >= groupRows || g.bytes >= groupBytes
	if full || len(g.batch) == 256 {
		if err := g.write(); err != nil {
			return err
		}
	}
	if !full {
		return nil
	}
	g.rows, g.bytes = 0, 0
	return g.w.Flush()
}

func (g *groups[T]) write() error {
	_, err := g.w.Write(g.batch)
	clear(g.batch)
	g.batch = g.batch[:0]
	return err
}

func (g *groups[T]) close() error {
	if err := g.write(); err != nil {
		return err
	}
	return g.w.Close()
}

// timeForm is the form of times in text: RFC 3339 in UTC, with six digits of the second.
const timeForm = "2006-01-02T15:04:05.000000Z"

// appendText appends a string as JSON.
func appendText(b []byte, s string) []byte {
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

// nowText returns the present time in timeForm.
func nowText() string { return time.Now().UTC().Format(timeForm) }

func logText(id events.LogID) string { return fmt.Sprintf("%x", id) }
