package eventlog

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
)

// readUntil reads with a reader up to a sequence, and checks that no sequence is missing.
func readUntil(t testing.TB, r *reader, to uint64) {
	t.Helper()
	ctx := testContext(t)
	for last := r.cur.Seq; last < to; {
		envs, err := r.nextEnvelopes(ctx, readBytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, env := range envs {
			if env.Seq() != last+1 {
				t.Fatalf("sequence after %d: got %d, want the next one", last, env.Seq())
			}
			last = env.Seq()
		}
	}
}

// TestReaderHasOnePullAtATime counts the pulls of a reader. With more than one at a time, the
// server could send more messages than the channel of the reader holds, and the NATS client would
// drop some.
func TestReaderHasOnePullAtATime(t *testing.T) {
	l, _ := openFilledLog(t, 200, 1)
	r := newReader(l, l.Start())
	r.pullBatch = 8
	readUntil(t, r, 200)
	if r.pulls < 200/8 || r.pulls > 200/8+2 {
		t.Errorf("pulls for 200 messages: got %d, want %d to %d", r.pulls, 200/8, 200/8+2)
	}
	if n, err := r.sub.Dropped(); n != 0 || err != nil {
		t.Errorf("dropped messages: got %d and error %v, want 0", n, err)
	}
	r.close()
}

// TestReaderNoticesLostMessage loses a message between server and reader. The reader requests it
// again.
func TestReaderNoticesLostMessage(t *testing.T) {
	l, p := openFilledLog(t, 3, 1)
	r := newReader(l, l.Start())
	readUntil(t, r, 3)
	mustPublish(t, p, newFollows(3, 4))
	<-r.msgs // this message is lost
	mustPublish(t, p, newFollows(4, 5))
	readUntil(t, r, 5)
	r.close()
}

// TestReaderReplacesIdleConsumer deletes the consumer of a reader, as the server does when the
// consumer is idle. A reader that was idle makes a new one without counting an interruption. A
// reader that was active counts one.
func TestReaderReplacesIdleConsumer(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l, p := openFilledLog(t, 3, 1)
		r := newReader(l, l.Start())
		defer r.close()
		readUntil(t, r, 3)

		stream, err := l.fetchStream(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := stream.DeleteConsumer(testContext(t), r.consumer); err != nil {
				t.Fatal(err)
			}
			r.lastRead = r.lastRead.Add(-consumerIdleTimeout)
			r.pullMessagesLeft = 0
			mustPublish(t, p, newFollows(3, 4))
			readUntil(t, r, r.cur.Seq+1)
		}

		if n := l.ErrorCounters().Interruptions; n != 0 {
			t.Errorf("interruptions of an idle reader: got %d, want 0", n)
		}

		// The reader is not idle now, so this is an interruption.
		if err := stream.DeleteConsumer(testContext(t), r.consumer); err != nil {
			t.Fatal(err)
		}
		mustPublish(t, p, newFollows(3, 4))
		readUntil(t, r, r.cur.Seq+1)
		if n := l.ErrorCounters().Interruptions; n != 1 {
			t.Errorf("interruptions of an active reader: got %d, want 1", n)
		}
	})
}

// TestReaderHandlesStatusMessages sends status messages of the server to a reader. Some end the
// current pull, some interrupt the reader, and heartbeats interrupt it only if the server withholds
// a message.
func TestReaderHandlesStatusMessages(t *testing.T) {
	l, p := openFilledLog(t, 1, 1)
	r := newReader(l, l.Start())
	defer r.close()
	readUntil(t, r, 1)
	receive := func(code, text string) error {
		return r.handleStatus(&nats.Msg{Subject: r.pullInbox(), Header: nats.Header{"Status": {code}, "Description": {text}}})
	}

	// These statuses end the current pull.
	for _, s := range [][2]string{{"408", "Request Timeout"}, {"409", "Batch Completed"}, {"409", "Message Size Exceeds MaxBytes"}} {
		r.pullMessagesLeft = 5
		if err := receive(s[0], s[1]); err != nil || r.pullMessagesLeft != 0 {
			t.Errorf("status %s %s: got error %v and %d messages left, want none", s[0], s[1], err, r.pullMessagesLeft)
		}
	}

	// These statuses interrupt the reader.
	for _, s := range [][2]string{{"409", "Consumer Deleted"}, {"409", "Leadership Change"}, {"503", ""}} {
		if err := receive(s[0], s[1]); !errors.Is(err, errInterrupted) {
			t.Errorf("status %s %s: got error %v, want %v", s[0], s[1], err, errInterrupted)
		}
	}

	// The reader has everything, so heartbeats do not interrupt it.
	for range 3 * maxStuckHeartbeats {
		if err := receive("100", "Idle Heartbeat"); err != nil {
			t.Fatalf("heartbeat at the head: got error %v, want none", err)
		}
	}

	// The log has a message that the server does not deliver, for example because it cannot read
	// it.
	mustPublish(t, p, newFollows(1, 2))
	var err error
	for range maxStuckHeartbeats {
		err = receive("100", "Idle Heartbeat")
	}
	if !errors.Is(err, errInterrupted) {
		t.Errorf("heartbeats without the message: got error %v, want %v", err, errInterrupted)
	}
}
