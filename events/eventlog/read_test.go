package eventlog

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
)

// readAll reads with a reader until the sequence, which must come without a gap.
func readUntil(t testing.TB, r *reader, to uint64) {
	t.Helper()
	ctx := testContext(t)
	for last := r.cur.Seq; last < to; {
		envs, err := r.next(ctx, readBytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, env := range envs {
			if env.Seq() != last+1 {
				t.Fatalf("sequence %d after %d", env.Seq(), last)
			}
			last = env.Seq()
		}
	}
}

// TestReaderHasOnePullAtATime: there is one request for messages at a time. With more, the server would send more than the
// client has room for.
func TestReaderHasOnePullAtATime(t *testing.T) {
	l, _ := openFilledLog(t, 200, 1)
	r := newReader(l, l.Start())
	r.pullBatch = 8
	readUntil(t, r, 200)
	if r.pulls < 200/8 || r.pulls > 200/8+2 {
		t.Errorf("it made %d requests for 200 messages", r.pulls)
	}
	if n, err := r.sub.Dropped(); n != 0 || err != nil {
		t.Errorf("%d messages were dropped, %v", n, err)
	}
	r.close()
}

// TestReaderNoticesLostMessage: a message that does not arrive is asked for again.
func TestReaderNoticesLostMessage(t *testing.T) {
	l, p := openFilledLog(t, 3, 1)
	r := newReader(l, l.Start())
	readUntil(t, r, 3)
	mustPublish(t, p, newFollows(3, 4))
	<-r.msgs // lost
	mustPublish(t, p, newFollows(4, 5))
	readUntil(t, r, 5)
	r.close()
}

// TestReaderReplacesIdleConsumer: the server forgets a reader that was not asked for a while. It begins anew, and that is no
// interruption.
func TestReaderReplacesIdleConsumer(t *testing.T) {
	l, p := openFilledLog(t, 3, 1)
	r := newReader(l, l.Start())
	defer r.close()
	readUntil(t, r, 3)
	stream, err := l.stream(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.DeleteConsumer(testContext(t), r.consumer); err != nil {
			t.Fatal(err)
		}
		r.lastRead, r.pullMessagesLeft = r.lastRead.Add(-consumerIdleTimeout), 0
		mustPublish(t, p, newFollows(3, 4))
		readUntil(t, r, r.cur.Seq+1)
	}
	if n := l.ErrorCounters().Interruptions; n != 0 {
		t.Errorf("%d interruptions", n)
	}
	// While it is read, that is counters.
	if err := stream.DeleteConsumer(testContext(t), r.consumer); err != nil {
		t.Fatal(err)
	}
	mustPublish(t, p, newFollows(3, 4))
	readUntil(t, r, r.cur.Seq+1)
	if n := l.ErrorCounters().Interruptions; n != 1 {
		t.Errorf("%d interruptions, want 1", n)
	}
}

// TestReaderHandlesStatusMessages: what the server says beside messages ends the request, or the reading, or nothing.
func TestReaderHandlesStatusMessages(t *testing.T) {
	l, p := openFilledLog(t, 1, 1)
	r := newReader(l, l.Start())
	defer r.close()
	readUntil(t, r, 1)
	say := func(code, text string) error {
		return r.handleStatus(&nats.Msg{Subject: r.pullInbox(), Header: nats.Header{"Status": {code}, "Description": {text}}})
	}
	for _, s := range [][2]string{{"408", "Request Timeout"}, {"409", "Batch Completed"}, {"409", "Message Size Exceeds MaxBytes"}} {
		r.pullMessagesLeft = 5
		if err := say(s[0], s[1]); err != nil || r.pullMessagesLeft != 0 {
			t.Errorf("%s %s: %v, still wants %d", s[0], s[1], err, r.pullMessagesLeft)
		}
	}
	for _, s := range [][2]string{{"409", "Consumer Deleted"}, {"409", "Leadership Change"}, {"503", ""}} {
		if err := say(s[0], s[1]); !errors.Is(err, errInterrupted) {
			t.Errorf("%s %s: %v", s[0], s[1], err)
		}
	}
	for range 3 * maxStuckHeartbeats {
		if err := say("100", "Idle Heartbeat"); err != nil {
			t.Fatalf("a heartbeat at the head: %v", err)
		}
	}
	// There is a message that the server does not deliver, for one that it cannot read.
	mustPublish(t, p, newFollows(1, 2))
	var err error
	for range maxStuckHeartbeats {
		err = say("100", "Idle Heartbeat")
	}
	if !errors.Is(err, errInterrupted) {
		t.Errorf("heartbeats without the message: %v", err)
	}
}
