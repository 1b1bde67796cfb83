package comparison

import (
	"bytes"
	"errors"
	"io"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay/internal/recordfile"
)

// group has what all records of one side say about one entry of a list.
type group struct {
	Entry
	sortKey []byte
	// distinctTimes is the number of distinct times in the records. earliest and latest are the
	// first and last of these.
	distinctTimes    int
	earliest, latest events.Micros
	// records is the number of records.
	records int
	// firstText is the text of the earliest record. lastText is the latest text that is not empty.
	firstText, lastText string
	// latestByText has the latest time of each text. It is used for implicit follows only, whose
	// texts are boards.
	latestByText map[string]events.Micros
}

// addRecord adds a record to the group. Records must be added in the order of their times.
func (g *group) addRecord(e *Entry) {
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

	if g.distinctTimes == 0 {
		g.earliest = e.At
	}
	if g.distinctTimes == 0 || e.At != g.latest {
		g.distinctTimes++
	}
	g.latest = e.At
	if kind := e.List.Kind; kind == ImplicitFollowing || kind == ImplicitFollowers {
		if g.latestByText == nil {
			g.latestByText = map[string]events.Micros{}
		}
		g.latestByText[e.Text] = e.At
	}
}

// since returns the time that the entry must have. [Timeless] means that any time is right.
func (g *group) since() events.Micros {
	if g.distinctTimes == 0 {
		return Timeless
	}
	switch g.List.Kind {
	case Boards, Pins, BoardPins:
		return g.earliest
	case ImplicitFollowing, ImplicitFollowers:
		// The implicit follow began with the first of the boards that are followed now. Of each
		// board, the latest follow counts.
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

// plays returns how many plays the records stand for. Records with a text are one play each. Of the
// others, those with the same time are one play.
func (g *group) plays() int {
	if g.lastText != "" {
		return g.records
	}
	return max(g.distinctTimes, 1)
}

// groupReader reads sorted records and combines them into groups.
type groupReader struct {
	from recordfile.Records
	// next is the first record that belongs to the next group; nil means that there is none.
	next *Entry
}

// newGroupReader returns a reader before the first group.
func newGroupReader(from recordfile.Records) (*groupReader, error) {
	r := &groupReader{from: from}
	return r, r.advance()
}

// advance reads the next record.
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

// readGroup returns the next group, or nil after the last one.
func (r *groupReader) readGroup() (*group, error) {
	if r.next == nil {
		return nil, nil
	}
	g := &group{Entry: *r.next, sortKey: r.next.sortKey()}
	for r.next != nil && bytes.Equal(r.next.sortKey(), g.sortKey) {
		g.addRecord(r.next)
		if err := r.advance(); err != nil {
			return nil, err
		}
	}
	return g, nil
}
