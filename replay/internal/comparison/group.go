package comparison

import (
	"bytes"
	"errors"
	"io"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay/internal/recordfile"
)

// group has all records of one side about one entry of a list.
type group struct {
	Entry
	sortKey []byte
	// timed is the number of distinct times; earliest and latest are the first and last of them.
	timed            int
	earliest, latest events.Micros
	// records is the number of records.
	records int
	// firstText is the text of the earliest record, lastText the latest text that is not empty.
	firstText, lastText string
	// latestByText is the latest time of each text, of implicit follows only: their texts are boards.
	latestByText map[string]events.Micros
}

// add adds a record to the group. Records come in the order of their times.
func (g *group) add(e *Entry) {
	g.records++
	if g.records == 1 {
		g.firstText = e.Text
	}
	if e.Text != "" {
		g.lastText = e.Text
	}
	if e.ID == "" || e.At == Timeless {
		return
	}

	if g.timed == 0 {
		g.earliest = e.At
	}
	if g.timed == 0 || e.At != g.latest {
		g.timed++
	}
	g.latest = e.At
	if kind := e.List.Kind; kind == ImplicitFollowing || kind == ImplicitFollowers {
		if g.latestByText == nil {
			g.latestByText = map[string]events.Micros{}
		}
		g.latestByText[e.Text] = e.At
	}
}

// since returns the time that the entry must have; [Timeless] means any time.
func (g *group) since() events.Micros {
	if g.timed == 0 {
		return Timeless
	}
	switch g.List.Kind {
	case Boards, Pins, BoardPins:
		return g.earliest
	case ImplicitFollowing, ImplicitFollowers:
		// It began with the first of the followed boards; of each board the latest follow counts.
		since := Timeless
		for _, at := range g.latestByText {
			since = min(since, at)
		}
		return since
	default:
		return g.latest
	}
}

// text returns the text that the entry must have.
func (g *group) text() string {
	if g.List.Kind == Boards {
		return g.lastText
	}
	return g.firstText
}

// plays returns how many plays the records are. Those with a text are one play each; of others, plays at the same time are one.
func (g *group) plays() int {
	if g.lastText != "" {
		return g.records
	}
	return max(g.timed, 1)
}

// groupReader reads records as groups.
type groupReader struct {
	from recordfile.Records
	// next is the first entry after the last returned group; nil means there is none.
	next *Entry
}

func newGroupReader(from recordfile.Records) (*groupReader, error) {
	r := &groupReader{from: from}
	return r, r.advance()
}

func (r *groupReader) advance() error {
	r.next = nil
	record, err := r.from.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	e, err := decodeEntry(record)
	r.next = &e
	return err
}

// read returns the next group, or nil after the last.
func (r *groupReader) read() (*group, error) {
	if r.next == nil {
		return nil, nil
	}
	g := &group{Entry: *r.next, sortKey: r.next.sortKey()}
	for r.next != nil && bytes.Equal(r.next.sortKey(), g.sortKey) {
		g.add(r.next)
		if err := r.advance(); err != nil {
			return nil, err
		}
	}
	return g, nil
}
