package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// fakeKey is a key of a fakeRedis. The elements of a sorted set are its members, each followed by its
// score; those of a hash are its fields, each followed by its value.
type fakeKey struct {
	structure structure
	elements  []string
}

// fakeRedis behaves like a Redis in its scans: the order of the keys is different in every run of
// the server, pages are small, and elements may be returned twice.
type fakeRedis struct {
	keys map[string]fakeKey
	run  uint64 // the run of the server; a test increments it to restart the server
	// hidesRunID makes the server not tell its runs apart.
	hidesRunID bool
	commands   int // so far
	// fail returns the error of a command, which counts from 1. A nil fail returns no errors.
	fail func(command int) error
}

// countCommand counts a command, and returns its error.
func (r *fakeRedis) countCommand() error {
	r.commands++
	if r.fail == nil {
		return nil
	}
	return r.fail(r.commands)
}

func (r *fakeRedis) runID(context.Context) (string, error) {
	if r.hidesRunID {
		return "", r.countCommand()
	}
	return fmt.Sprint("run ", r.run), r.countCommand()
}

func (r *fakeRedis) size(context.Context) (int64, error) { return int64(len(r.keys)), r.countCommand() }

// order returns the keys in their order in this run of the server.
func (r *fakeRedis) order() []string {
	var names []string
	for name := range r.keys {
		names = append(names, name)
	}
	slices.Sort(names)
	random := rand.New(rand.NewPCG(r.run, 0))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

func (r *fakeRedis) scan(_ context.Context, cursor uint64, _ string) ([]string, uint64, error) {
	if err := r.countCommand(); err != nil {
		return nil, 0, err
	}

	// The last key of the previous page is returned again.
	names := r.order()
	from := max(int(cursor)-1, 0)
	to := min(int(cursor)+3, len(names))
	next := uint64(to)
	if to == len(names) {
		next = 0
	}
	return names[min(from, to):to], next, nil
}

func (r *fakeRedis) types(_ context.Context, keys []string) ([]string, error) {
	types := make([]string, len(keys))
	for i, key := range keys {
		types[i] = cmp.Or(string(r.keys[key].structure), "none")
	}
	return types, r.countCommand()
}

func (r *fakeRedis) readPages(_ context.Context, requests []pageRequest) ([]page, error) {
	pages := make([]page, len(requests))
	for i, request := range requests {
		elements := r.keys[request.key].elements
		to := min(int(request.cursor)+4, len(elements))
		pages[i].elements = elements[request.cursor:to]
		if to < len(elements) {
			pages[i].next = uint64(to)
		}
	}
	return pages, r.countCommand()
}

// fakeLog accepts events as the service does: it appends an event, and ignores it if its offset is
// not above the highest one of its source and kind. Every play counts, as in the service.
type fakeLog struct {
	t     *testing.T
	calls int // calls of publish
	// eventCounts says how often each event is in the log, by its description.
	eventCounts map[string]int
	// highestOffsets has the highest offset of each source and kind.
	highestOffsets map[string]uint64
	// fail returns the errors of a call, which counts from 1. An error before replaces the call; an
	// error after is returned although the call was made. A nil fail returns no errors.
	fail func(call int) (before, after error)
}

func newFakeLog(t *testing.T) *fakeLog {
	return &fakeLog{t: t, eventCounts: map[string]int{}, highestOffsets: map[string]uint64{}}
}

// publish implements the method Publish of the service.
func (l *fakeLog) publish(_ context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	l.calls++
	var before, after error
	if l.fail != nil {
		before, after = l.fail(l.calls)
	}
	if before != nil {
		return nil, before
	}

	if n := len(req.GetEvents()); n == 0 || n > events.MaxEnvelopeEvents || proto.Size(req) > events.MaxEnvelopeBytes {
		l.t.Errorf("got a call of %d events and %d bytes, expected 1 to %d events and at most %d bytes",
			n, proto.Size(req), events.MaxEnvelopeEvents, events.MaxEnvelopeBytes)
	}

	res := &skeinv1.PublishResponse{Position: fmt.Sprint("after call ", l.calls)}
	for i, ev := range req.GetEvents() {
		flat, rejection := events.FromProto(ev)
		if rejection != nil {
			l.t.Errorf("got the event %v, which is rejected: %v; expected only valid events", ev, rejection)
			continue
		}
		res.AcceptedCount++

		key := fmt.Sprint(flat.Source, flat.Kind)
		if flat.Offset > l.highestOffsets[key] {
			l.highestOffsets[key] = flat.Offset
			l.eventCounts[describeEvent(&flat)]++
		} else {
			res.RepeatedIndexes = append(res.RepeatedIndexes, int32(i))
		}
	}
	return res, after
}

// describeEvent describes an event in one line, without its source and offset.
func describeEvent(ev *events.Event) string {
	return fmt.Sprintf("%v %s %s %s %s %s %v %s %s", ev.Kind, ev.User, ev.Peer, ev.Board, ev.Pin, ev.Item, ev.Items, ev.Title,
		ev.Time.Time().Format(time.RFC3339Nano))
}

// errBroken is the error with which tests interrupt an import.
var errBroken = errors.New("interrupted")

// start is the time at which imports start.
var start = time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)

const plainMapping = `rules:
- {means: follows, key: "followers:{user}", member: "{follower}", score: s}
- {means: follows, key: "following:{follower}", member: "{user}"}
- {means: plays, key: "plays:{user}", field: "{item}", value: "{time:ms}"}
- {means: reactions, key: "likes:{item}", member: "{user}"}
- {means: served, key: "served:{user}", element: "{item}"}
`

// newTestRun returns a run of an import from a fake Redis into a fake log.
func newTestRun(t *testing.T, r *fakeRedis, l *fakeLog) *importRun {
	t.Helper()
	o := Options{
		Mapping: mustParse(t, plainMapping), Name: "m.yaml", State: t.TempDir(),
		PublishOptions: importer.PublishOptions{
			LogID: "log", Publish: l.publish, Patience: time.Minute, Now: func() time.Time { return start },
		},
	}
	if err := o.setDefaultsAndCheck(); err != nil {
		t.Fatal(err)
	}
	return &importRun{Options: o, keyspace: r, serverName: "fake"}
}

// newRun returns another run of the same import, as in a new process.
func (r *importRun) newRun() *importRun {
	return &importRun{Options: r.Options, keyspace: r.keyspace, serverName: r.serverName, maxRecords: r.maxRecords}
}

func mustRun(t *testing.T, r *importRun) *Report {
	t.Helper()
	report, err := r.readAndPublish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}
