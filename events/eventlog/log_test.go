package eventlog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// TestEmbeddedLogKeepsItsIDWhenReopened checks that a new embedded log has an id, epoch 1 and a size
// limit. It has the same id and epoch, and all envelopes, when it is opened again.
func TestEmbeddedLogKeepsItsIDWhenReopened(t *testing.T) {
	checkLeaks(t)
	dir := filepath.Join(t.TempDir(), "a", "b")
	l := mustOpenLog(t, Config{Dir: dir})
	if l.ID() == (events.LogID{}) || l.Epoch() != 1 {
		t.Errorf("new log: got id %x and epoch %d, want an id and epoch 1", l.ID(), l.Epoch())
	}
	if got := l.Start(); got != (events.Cursor{Log: l.ID(), Epoch: 1}) {
		t.Errorf("start of the log: got %+v, want only id and epoch", got)
	}

	ctx := testContext(t)
	head, err := l.Head(ctx)
	if err != nil || head.Last != 0 || head.MaxBytes <= 0 {
		t.Errorf("head of a new log: got %+v and error %v, want last 0 and a limit", head, err)
	}

	free, err := l.server.Free()
	if err != nil || float64(head.MaxBytes) > 0.9*float64(free) || float64(head.MaxBytes) < 0.6*float64(free) {
		t.Errorf("size limit: got %d bytes of %d that are free (error %v), want about 80 %%", head.MaxBytes, free, err)
	}

	if _, err := l.Health(ctx); err != nil {
		t.Error(err)
	}

	info, err := l.fetchStreamInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := configDifferences(info.Config, 1); len(got) != 0 {
		t.Errorf("differences of the stream from its configuration: got %v, want none", got)
	}

	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 3))
	closeLog(t, l)

	if _, err := l.Health(ctx); err == nil {
		t.Error("health of a closed log: got no error, want one")
	}
	if _, err := l.NewPublisher(PublisherOptions{}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("publisher of a closed log: got error %v, want %v", err, events.ErrClosed)
	}

	again := mustOpenLog(t, Config{Dir: dir})
	if again.ID() != l.ID() || again.Epoch() != l.Epoch() {
		t.Errorf("opened again: got id %x and epoch %d, want %x and %d", again.ID(), again.Epoch(), l.ID(), l.Epoch())
	}
	if head, err := again.Head(ctx); err != nil || head.First != 1 || head.Last != 1 {
		t.Errorf("head when opened again: got %+v and error %v, want 1 to 1", head, err)
	}
}

func TestOpenFailsWhileDirectoryIsInUse(t *testing.T) {
	dir := t.TempDir()
	mustOpenLog(t, Config{Dir: dir})
	_, err := Open(testContext(t), Config{Dir: dir})
	if !errors.Is(err, events.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second open of the directory: got error %v, want %v with %q", err, events.ErrLocked, dir)
	}
}

func TestEphemeralLogRemovesItsDirectory(t *testing.T) {
	checkLeaks(t)
	l := mustOpenLog(t, Config{Ephemeral: true})
	dir := l.server.Dir()
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}

	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
	closeLog(t, l)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the directory after Close: got error %v, want %v", err, os.ErrNotExist)
	}
}

func TestOpenRejectsInvalidConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"neither directory nor URL":   {},
		"directory and URL":           {Dir: "d", URL: "nats://127.0.0.1:1"},
		"ephemeral with a directory":  {Dir: "d", Ephemeral: true},
		"replicas of an embedded log": {Ephemeral: true, Replicas: 3},
		"credentials without server":  {Ephemeral: true, CredsFile: "x"},
		"negative limit":              {Ephemeral: true, MaxBytes: -1},
		"directory is a file":         {Dir: file},
		"missing credentials file":    {URL: "nats://127.0.0.1:1", CredsFile: file + "x"},
		"missing CA file":             {URL: "nats://127.0.0.1:1", TLS: TLSFiles{CAFile: file + "x"}},
		"URL without host":            {URL: "nats://:4222"},
		"malformed URL":               {URL: "nats://a b"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Open(testContext(t), cfg)
			if err == nil {
				t.Error("Open: got no error, want one")
				closeLog(t, l)
			}
		})
	}
}

func TestOpenReportsUnreachableServer(t *testing.T) {
	checkLeaks(t)
	var logged bytes.Buffer
	cfg := Config{
		URL:            "nats://ann:secret@127.0.0.1:1",
		ConnectTimeout: 20 * time.Millisecond,
		Logger:         slog.New(slog.NewTextHandler(&logged, nil)),
	}
	if _, err := Open(testContext(t), cfg); !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("after the timeout: got error %v, want %v", err, events.ErrLogUnavailable)
	}

	// The process says once that it waits, and does not log the password.
	lines := logged.String()
	if got := strings.Count(lines, "cannot be reached"); got != 1 {
		t.Errorf("lines that say that the server cannot be reached: got %d, want 1:\n%s", got, lines)
	}
	if !strings.Contains(lines, "nats://127.0.0.1:1") || strings.Contains(lines, "secret") {
		t.Errorf("logged while trying: got %q, want the server's address and not the password", lines)
	}

	cfg.Logger = nil
	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	cfg.ConnectTimeout = 0
	if _, err := Open(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the end of the context: got error %v, want %v", err, context.DeadlineExceeded)
	}

	ns := startTestServer(t, server.Options{})
	cfg.URL = ns.ClientURL()
	if _, err := Dial(testContext(t), cfg, PublisherOptions{}); !errors.Is(err, events.ErrNoLog) {
		t.Errorf("Dial where there is no log: got error %v, want %v", err, events.ErrNoLog)
	}

	canceled, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := Open(canceled, Config{Dir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with an ended context: got error %v, want %v", err, context.Canceled)
	}
}

func TestOpenRejectsUnfitServer(t *testing.T) {
	ns := startTestServer(t, server.Options{MaxPayload: 512 << 10})
	_, err := Open(testContext(t), Config{URL: ns.ClientURL()})
	if !errors.Is(err, events.ErrStreamMismatch) || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("with a small max_payload: got error %v, want %v with %q", err, events.ErrStreamMismatch, "max_payload")
	}

	// Wrong credentials are not retried: with a timeout of an hour, Open still fails at once.
	ns = startTestServer(t, server.Options{Username: "u", Password: "p"})
	_, err = Open(testContext(t), Config{URL: ns.ClientURL(), ConnectTimeout: time.Hour})
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open without a password: got error %v, want one at once", err)
	}
}

// createStream creates a stream on a server that may still be removing the folder of the last one.
func createStream(t *testing.T, js jetstream.JetStream, c jetstream.StreamConfig) error {
	ctx := testContext(t)
	for {
		_, err := js.CreateStream(ctx, c)
		if apiError(err).ErrorCode != 10049 { // error creating store for stream
			return err
		}
	}
}

func TestOpenRejectsUnfitStream(t *testing.T) {
	t.Parallel()
	ns := startTestServer(t, server.Options{})
	js := connectPlainClient(t, ns)
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"subjects is":             func(c *jetstream.StreamConfig) { c.Subjects = []string{Subject, "more"} },
		"storage is":              func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"retention is":            func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"discard is":              func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"discard_new_per_subject": func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject, c.MaxMsgsPerSubject = true, 9 },
		"max_age is 1h":           func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs is 100":         func(c *jetstream.StreamConfig) { c.MaxMsgs = 100 },
		"max_msgs_per_subject":    func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 100 },
		"max_msg_size is 1000":    func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 },
		"duplicate_window is 1s":  func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
		"persist_mode is":         func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"subject_transform": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: Subject, Destination: "b"}
		},
		"sources": func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "OTHER"}} },
		"mirror": func(c *jetstream.StreamConfig) {
			c.Mirror, c.Subjects = &jetstream.StreamSource{Name: "OTHER"}, nil
		},
		"no_ack":                  func(c *jetstream.StreamConfig) { c.NoAck = true },
		"deny_purge":              func(c *jetstream.StreamConfig) { c.DenyPurge = true },
		"allow_rollup_hdrs":       func(c *jetstream.StreamConfig) { c.AllowRollup = true },
		"allow_msg_ttl":           func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"allow_atomic":            func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true },
		"allow_batched":           func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true },
		"metadata skein-log":      func(c *jetstream.StreamConfig) { c.Metadata = nil },
		"skein-epoch is \"0\"":    func(c *jetstream.StreamConfig) { c.Metadata[metaEpoch] = "0" },
		"skein-predecessors":      func(c *jetstream.StreamConfig) { c.Metadata[metaPredecessors] = "x" },
		"skein-erased":            func(c *jetstream.StreamConfig) { c.Metadata[metaErased] = "1:07" },
		"skein-erased-partitions": func(c *jetstream.StreamConfig) { c.Metadata[metaErasedPartitions] = "{" },
		"from 1 to below": func(c *jetstream.StreamConfig) {
			c.Metadata[metaPredecessors] = `[{"epoch":1,"last":5}]`
		},
		"allow_msg_schedules": func(c *jetstream.StreamConfig) { c.AllowMsgSchedules, c.Discard = true, jetstream.DiscardOld },
		"allow_msg_counter": func(c *jetstream.StreamConfig) {
			c.AllowMsgCounter, c.Discard = true, jetstream.DiscardOld
		},
	} {
		t.Run(want, func(t *testing.T) {
			c := streamConfig(events.LogID{1}, 1, -1)
			change(&c)
			if err := createStream(t, js, c); err != nil {
				t.Errorf("create a stream for %q: %v", want, err)
				return
			}
			_, err := Open(testContext(t), Config{URL: ns.ClientURL()})
			if !errors.Is(err, events.ErrStreamMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %v with %q", err, events.ErrStreamMismatch, want)
			}
			if err := js.DeleteStream(testContext(t), StreamName); err != nil {
				t.Fatal(err)
			}
		})
	}

	// configDifferences reports all differences, not only the first.
	c := streamConfig(events.LogID{1}, 1, -1)
	c.MaxAge, c.AllowRollup = time.Hour, true
	if diffs := configDifferences(c, 3); len(diffs) != 3 || !strings.Contains(diffs[1], "num_replicas is 1, must be 3") {
		t.Errorf("differences: got %q, want three, among them the number of replicas", diffs)
	}

	// Another stream must not have the subject.
	c.Name = "OTHER"
	if err := createStream(t, js, c); err != nil {
		t.Fatal(err)
	}
	_, err := Open(testContext(t), Config{URL: ns.ClientURL()})
	if !errors.Is(err, events.ErrStreamMismatch) || !strings.Contains(err.Error(), Subject) {
		t.Errorf("Open beside another stream with the subject: got error %v, want %v with %q", err, events.ErrStreamMismatch, Subject)
	}

	c.Subjects = []string{"other"}
	if _, err := js.UpdateStream(testContext(t), c); err != nil {
		t.Fatal(err)
	}
	mustOpenLog(t, Config{URL: ns.ClientURL(), MaxBytes: 1 << 20})

	// An external log keeps the size limit that it has, whatever the configuration of a process
	// says.
	l := mustOpenLog(t, Config{URL: ns.ClientURL(), MaxBytes: 2 << 20, Replicas: 1})
	if head, err := l.Head(testContext(t)); err != nil || head.MaxBytes != 1<<20 {
		t.Errorf("head of an external log: got %+v and error %v, want a limit of %d", head, err, 1<<20)
	}
}

// listCursors returns the start of a log and the cursor after each of its envelopes.
func listCursors(t testing.TB, l *Log) []events.Cursor {
	t.Helper()
	all := []events.Cursor{l.Start()}
	for _, env := range readWholeLog(t, l) {
		all = append(all, env.Cursor)
	}
	return all
}

// TestCheckCursorSaysWhyReadingCannotContinue checks that CheckCursor accepts every cursor that a
// reader got, and says about all others why no reader can continue there.
func TestCheckCursorSaysWhyReadingCannotContinue(t *testing.T) {
	ctx := testContext(t)
	l := mustOpenLog(t, Config{})
	p := newPublisher(t, l, PublisherOptions{})
	for n := range 20 {
		mustPublish(t, p, newFollows(n, n+1))
	}

	all := listCursors(t, l)
	for seq, c := range all {
		if err := l.CheckCursor(ctx, c); err != nil {
			t.Errorf("cursor %d: %v", seq, err)
		}
	}

	with := func(seq int, change func(*events.Cursor)) events.Cursor {
		c := all[seq]
		change(&c)
		return c
	}

	for name, test := range map[string]struct {
		cursor   events.Cursor
		wantErr  error
		wantText string
	}{
		"empty cursor":      {events.Cursor{}, events.ErrOtherLog, "connect to the right server"},
		"another log":       {with(3, func(c *events.Cursor) { c.Log[0]++ }), events.ErrOtherLog, "connect to the right server"},
		"another epoch":     {with(3, func(c *events.Cursor) { c.Epoch++ }), events.ErrOtherEpoch, "rebuild"},
		"after the end":     {with(20, func(c *events.Cursor) { c.Seq++ }), events.ErrLogShorter, "ends at sequence 20, the cursor is at 21"},
		"another checksum":  {with(3, func(c *events.Cursor) { c.Checksum++ }), events.ErrRewritten, "sequence 3 holds another"},
		"the next sequence": {with(3, func(c *events.Cursor) { c.Seq++ }), events.ErrRewritten, "sequence 4 holds another"},
	} {
		t.Run(name, func(t *testing.T) {
			err := l.CheckCursor(ctx, test.cursor)
			if !errors.Is(err, test.wantErr) || !strings.Contains(err.Error(), test.wantText) {
				t.Errorf("cursor %+v: got error %v, want %v with %q", test.cursor, err, test.wantErr, test.wantText)
			}
		})
	}

	// A message is deleted.
	stream, err := l.conn.js.Stream(ctx, StreamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(ctx, 15); err != nil {
		t.Fatal(err)
	}
	if err := l.CheckCursor(ctx, all[15]); !errors.Is(err, events.ErrHole) {
		t.Errorf("cursor of a deleted message: got error %v, want %v", err, events.ErrHole)
	}

	// The stream is trimmed.
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(10)); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []int{0, 5, 9} {
		if err := l.CheckCursor(ctx, all[seq]); !errors.Is(err, events.ErrTrimmed) {
			t.Errorf("cursor %d of a trimmed log: got error %v, want %v", seq, err, events.ErrTrimmed)
		}
	}

	// A reader also needs the horizon before the cursor, from WarmSeq on, and not only what comes
	// after the cursor.
	warm := with(12, func(c *events.Cursor) { c.WarmSeq = 9 })
	if err := l.CheckCursor(ctx, warm); !errors.Is(err, events.ErrTrimmed) {
		t.Errorf("cursor whose warm-up is trimmed: got error %v, want %v", err, events.ErrTrimmed)
	}

	warm.WarmSeq = 10
	if err := l.CheckCursor(ctx, warm); err != nil {
		t.Errorf("cursor whose warm-up the trimmed log has: got error %v, want none", err)
	}

	// The stream is emptied.
	if err := stream.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range []events.Cursor{l.Start(), all[20]} {
		if err := l.CheckCursor(ctx, c); !errors.Is(err, events.ErrTrimmed) {
			t.Errorf("cursor %d of an emptied log: got error %v, want %v", c.Seq, err, events.ErrTrimmed)
		}
	}
}

// TestCheckPositionRejectsForeignAndFuturePositions checks that every process accepts the positions
// of the log, also those that it has not read yet. It rejects positions of other logs and epochs,
// and positions after the end.
func TestCheckPositionRejectsForeignAndFuturePositions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	ns := startTestServer(t, server.Options{})
	a := mustOpenLog(t, Config{URL: ns.ClientURL()})
	b := mustOpenLog(t, Config{URL: ns.ClientURL()})
	if a.ID() != b.ID() {
		t.Fatalf("ids of the log in two processes: got %x and %x, want the same", a.ID(), b.ID())
	}

	pos := mustPublish(t, newPublisher(t, a, PublisherOptions{}), newFollows(0, 1)).Position
	for _, l := range []*Log{a, b} { // b does not know the position yet
		if err := l.CheckPosition(ctx, pos); err != nil {
			t.Error(err)
		}

		ahead := pos
		ahead.Seq++
		foreign := pos
		foreign.Log[3]++
		otherEpoch := pos
		otherEpoch.Epoch++
		for p, want := range map[events.Position]error{
			ahead:      events.ErrPositionAhead,
			foreign:    events.ErrOtherLog,
			otherEpoch: events.ErrOtherEpoch,
		} {
			if err := l.CheckPosition(ctx, p); !errors.Is(err, want) {
				t.Errorf("position %+v: got error %v, want %v", p, err, want)
			}
		}
	}

	if err := a.CheckPosition(ctx, a.Start().Position()); err != nil {
		t.Errorf("position of the start: got error %v, want none", err)
	}
}

func TestReadMessageReturnsBodyAndHeader(t *testing.T) {
	l := mustOpenLog(t, Config{})
	evs := newFollows(0, 2)
	mustPublish(t, newPublisher(t, l, PublisherOptions{}), evs)

	msg, err := l.ReadMessage(testContext(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if msg.Seq != 1 || msg.Time.IsZero() {
		t.Errorf("message: got sequence %d at %v, want sequence 1 with a time", msg.Seq, msg.Time)
	}
	if want := mustEncode(t, evs...); !bytes.Equal(msg.Data, want) {
		t.Errorf("body of the message: got %x, want %x", msg.Data, want)
	}
	if msg.Header["Nats-Msg-Id"] == nil {
		t.Errorf("header: got %v, want a Nats-Msg-Id", msg.Header)
	}

	if _, err := l.ReadMessage(testContext(t), 2); !errors.Is(err, ErrNoMessage) {
		t.Errorf("message after the end: got error %v, want %v", err, ErrNoMessage)
	}
}
