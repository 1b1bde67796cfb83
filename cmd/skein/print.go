package main

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

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// compactJSON is a message as the API answers it, in one line.
func compactJSON(m proto.Message) ([]byte, error) {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	err = json.Compact(&line, data) // the module varies its spaces
	return line.Bytes(), err
}

// printJSON prints a message for programs, one a line.
func printJSON(w io.Writer, m proto.Message) error {
	line, err := compactJSON(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// table prints rows for people, in columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(header...)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t *table) flush() error { return t.w.Flush() }

// plural is a number of things for people.
func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// timeText is a time for people; empty: none.
func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Format("2006-01-02T15:04:05.999999Z")
}

func kindText(k skeinv1.FollowKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "FOLLOW_KIND_"))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// secondsText is a duration for people.
func secondsText(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

// printPlainJSON prints a value for programs, one a line.
func printPlainJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
