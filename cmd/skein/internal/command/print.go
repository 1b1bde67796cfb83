package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// compactJSON returns a message in the JSON of the API, in one line.
func compactJSON(m proto.Message) ([]byte, error) {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	err = json.Compact(&line, data) // the protobuf module varies its spaces on purpose
	return line.Bytes(), err
}

// PrintJSON prints a message for programs, as one line.
func PrintJSON(w io.Writer, m proto.Message) error {
	line, err := compactJSON(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// Table prints rows for people, in aligned columns. It prints nothing before Flush.
type Table struct{ w *tabwriter.Writer }

// NewTable begins a table with the names of its columns.
func NewTable(w io.Writer, header ...string) *Table {
	t := &Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.Row(header...)
	return t
}

// Row adds a row. It escapes control characters, because cells may have what users wrote, and a
// terminal would obey them.
func (t *Table) Row(cells ...string) {
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = events.EscapeControls(cell)
	}
	fmt.Fprintln(t.w, strings.Join(escaped, "\t"))
}

// Flush prints the table.
func (t *Table) Flush() error { return t.w.Flush() }

// Plural returns a number with its noun, in the singular for 1 and otherwise in the plural.
func Plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// TimeText returns a time for people; nil is "-".
func TimeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Format("2006-01-02T15:04:05.999999Z")
}

// FollowKindText returns a kind of follow for people.
func FollowKindText(k skeinv1.FollowKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "FOLLOW_KIND_"))
}

// YesNo returns "yes" or "no".
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// SecondsText returns a duration in seconds for people.
func SecondsText(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

// PrintPlainJSON prints a value that is not a message of the API for programs, as one line.
func PrintPlainJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
