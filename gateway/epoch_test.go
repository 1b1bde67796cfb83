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

// archivedLog is an archive in memory, which begins with the first envelope of the log.
type archivedLog []*events.Envelope

func (a archivedLog) End() events.Cursor { return a[len(a)-1].Cursor }

func (a archivedLog) Repeats(context.Context, uint32) ([]events.Repeat, error) { return nil, nil }

func (a archivedLog) Read(_ context.Context, from events.Cursor, _ events.KindSet) (events.ArchiveReader, error) {
	// The envelope at index n has the sequence number n+1, because the archives of these tests have
	// no holes.
	return &archivedReader{a[from.Seq:]}, nil
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

// publishToNewLog makes a log with one envelope for each event, and returns the envelopes that a
// reader of the log gets.
func publishToNewLog(t *testing.T, evs ...*skeinv1.Event) archivedLog {
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

	// The hub ends with Close. If it fails earlier, Next returns the error.
	h := eventlog.NewHub(l, eventlog.HubOptions{})
	defer h.Close()
	go func() { _ = h.Run(ctx) }()
	sub, err := h.Subscribe(l.Start())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	var envelopes archivedLog
	for len(envelopes) < len(evs) {
		envs, err := sub.Next(ctx, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		envelopes = append(envelopes, envs...)
	}
	return envelopes
}

// TestPositionsOfAnEarlierEpochAreAccepted checks that positions and page tokens of an earlier
// epoch are valid up to where the present epoch continues that one. Later ones are refused.
func TestPositionsOfAnEarlierEpochAreAccepted(t *testing.T) {
	// The log of epoch 1 has three envelopes. Epoch 2 continues it after the second, so the third
	// is lost.
	envelopes := publishToNewLog(t, follow("ann", "bob"), follow("cid", "bob"), follow("dan", "bob"))
	head := envelopes[1].Cursor
	logConfig := eventlog.Config{Dir: t.TempDir(), MaxBytes: 1 << 30, Existing: true}
	err := eventlog.Restore(t.Context(), logConfig, eventlog.RestoredState{
		ID: head.Log, Epoch: 2, Predecessors: []eventlog.Predecessor{{Epoch: 1, Last: 2}}, Head: head,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *worldOptions) {
		o.logConfig = logConfig
		o.past = envelopes[:2]
	})
	continued := head.Position()
	lost := envelopes[2].Cursor.Position()
	at := w.publish(follow("eve", "bob"))
	if p, err := events.ParsePosition(at); err != nil || p.Epoch != 2 || p.Seq != 3 {
		t.Fatalf("published at %+v with the error %v, want epoch 2 and sequence number 3", p, err)
	}
	followersOfBob := w.followers("bob", anyKind)

	for name, atLeast := range map[string]string{"position of the new epoch": at, "position that the new epoch continues": continued.String()} {
		t.Run(name, func(t *testing.T) {
			p, err := followersOfBob(10, "", atLeast)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.entries) != 3 || p.position != at {
				t.Errorf("got %+v, want three followers at %s", p, at)
			}
		})
	}
	t.Run("lost position", func(t *testing.T) {
		_, err := followersOfBob(10, "", lost.String())
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
	})

	// Make page tokens as the earlier epoch signed them, from one of the new epoch.
	firstPage, err := followersOfBob(2, "", "")
	if err != nil {
		t.Fatal(err)
	}
	list := graphservice.ListIDOf(graph.List{Kind: graph.Followers, User: "bob"})
	token, err := w.server.views.Keys.Verify(firstPage.next, list)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("page token that the new epoch continues", func(t *testing.T) {
		token.Position = continued
		p, err := followersOfBob(2, w.server.views.Keys.Sign(token), "")
		if err != nil {
			t.Fatal(err)
		}
		if len(p.entries) != 1 {
			t.Errorf("got %+v, want one follower", p)
		}
	})
	t.Run("page token of a lost position", func(t *testing.T) {
		token.Position = lost
		_, err := followersOfBob(2, w.server.views.Keys.Sign(token), "")
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
	})
}
