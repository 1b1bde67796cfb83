package gateway

import (
	"context"
	"io"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// archivedLog is an archive in memory.
type archivedLog []*events.Envelope

func (a archivedLog) End() events.Cursor { return a[len(a)-1].Cursor }

func (a archivedLog) Repeats(context.Context, uint32) ([]events.Repeat, error) { return nil, nil }

func (a archivedLog) Read(_ context.Context, from events.Cursor, _ events.KindSet) (events.ArchiveReader, error) {
	return &archivedReader{a[from.Seq:]}, nil // the archives of these tests have no holes
}

type archivedReader struct{ rest archivedLog }

func (r *archivedReader) Next(context.Context, int) ([]*events.Envelope, error) {
	if len(r.rest) == 0 {
		return nil, io.EOF
	}
	envs := r.rest
	r.rest = nil
	return envs, nil
}

func (*archivedReader) Close() {}

// oldLog makes a log with one envelope for each event, and returns what a reader gets.
func oldLog(t *testing.T, evs ...*skeinv1.Event) archivedLog {
	t.Helper()
	ctx := t.Context()
	l, err := eventlog.Open(ctx, eventlog.Config{Ephemeral: true, MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	p, err := l.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs {
		if _, err := p.Publish(ctx, []*skeinv1.Event{ev}, eventlog.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h := eventlog.NewHub(l, eventlog.HubOptions{})
	defer h.Close()
	go func() { _ = h.Run(ctx) }() // it ends with Close, and Next says what went wrong
	s, err := h.Subscribe(l.Start())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all archivedLog
	for len(all) < len(evs) {
		envs, err := s.Next(ctx, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, envs...)
	}
	return all
}

// Positions and page tokens of an earlier epoch are valid as far as the present epoch continues
// that one. Others are refused.
func TestPositionsOfAnEarlierEpochAreAccepted(t *testing.T) {
	all := oldLog(t, follow("ann", "bob"), follow("cid", "bob"), follow("dan", "bob"))
	head := all[1].Cursor
	logConfig := eventlog.Config{Dir: t.TempDir(), MaxBytes: 1 << 30, Existing: true}
	if err := eventlog.Restore(t.Context(), logConfig, eventlog.RestoredState{
		ID: head.Log, Epoch: 2, Predecessors: []eventlog.Predecessor{{Epoch: 1, Last: 2}}, Head: head,
	}); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *worldOptions) { o.logConfig, o.past = logConfig, all[:2] })
	before, lost := head.Position(), all[2].Cursor.Position()
	at := w.publish(follow("eve", "bob"))
	if p, err := events.ParsePosition(at); err != nil || p.Epoch != 2 || p.Seq != 3 {
		t.Fatalf("published at %+v, %v", p, err)
	}
	if p, err := w.followers("bob", anyKind)(10, "", at); err != nil || len(p.entries) != 3 {
		t.Errorf("in the new epoch: %+v %v", p, err)
	}
	p, err := w.followers("bob", anyKind)(10, "", before.String())
	if err != nil || len(p.entries) != 3 || p.position != at {
		t.Errorf("a position of the epoch before: %+v %v", p, err)
	}
	_, err = w.followers("bob", anyKind)(10, "", lost.String())
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")

	// A token as the epoch before gave it.
	if p, err = w.followers("bob", anyKind)(2, "", ""); err != nil {
		t.Fatal(err)
	}
	list := graphservice.ListIDOf(graph.List{Kind: graph.Followers, User: "bob"})
	token, err := w.server.views.Keys.Verify(p.next, list)
	if err != nil {
		t.Fatal(err)
	}
	token.Position = before
	if p, err = w.followers("bob", anyKind)(2, w.server.views.Keys.Sign(token), ""); err != nil || len(p.entries) != 1 {
		t.Errorf("a token of the epoch before: %+v %v", p, err)
	}
	token.Position = lost
	_, err = w.followers("bob", anyKind)(2, w.server.views.Keys.Sign(token), "")
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
}
