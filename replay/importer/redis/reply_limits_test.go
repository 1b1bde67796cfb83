package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/replay/importer"
)

// serveReplies accepts connections until the test ends. It answers every command with the reply,
// over and over if endless.
func serveReplies(t *testing.T, reply string, endless bool) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answerCommands(conn, reply, endless)
			_ = conn.Close()
		}
	}()

	s, err := newServer(&Options{
		URL: "redis://" + l.Addr().String(), PageSize: 10, PublishOptions: importer.PublishOptions{Patience: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.close(), l.Close()); err != nil {
			t.Errorf("close of the connection and the listener: got %v, expected no error", err)
		}
		<-ended
	})
	return s
}

// answerCommands answers commands on a connection until the client closes it. Unless the answers
// are endless, it answers HELLO as a server that does not know it.
func answerCommands(conn net.Conn, reply string, endless bool) {
	in := bufio.NewReader(conn)
	for {
		var arguments int
		if _, err := fmt.Fscanf(in, "*%d\r\n", &arguments); err != nil {
			return
		}

		command := ""
		for range 2 * arguments {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			command += line
		}

		answer := reply
		if !endless && strings.Contains(strings.ToLower(command), "hello") {
			answer = "-ERR unknown command\r\n"
		}
		for {
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
			if !endless {
				break
			}
		}
	}
}

// TestRunIDIsReadFromAnyInfo reads the answers of servers whose INFO has no sections, or does not
// contain the field.
func TestRunIDIsReadFromAnyInfo(t *testing.T) {
	for name, test := range map[string]struct{ info, runID string }{
		"Redis":          {"# Server\r\nredis_version:8.0\r\nrun_id:abc\r\n", "abc"},
		"no sections":    {"redis_version:8.0\r\nrun_id:abc\r\n", "abc"},
		"no run_id":      {"# Server\r\nredis_version:8.0\r\n", ""},
		"nothing at all": {"", ""},
		"no fields":      {"# Server\r\nrun_id\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveReplies(t, fmt.Sprintf("$%d\r\n%s\r\n", len(test.info), test.info), false)
			if id, err := s.runID(t.Context()); id != test.runID || err != nil {
				t.Errorf("got the run id %q and %v, expected %q", id, err, test.runID)
			}
		})
	}
}

// If a server answers without end, or announces more than any import needs, the error names the
// limit, and there is no other attempt.
func TestTooLargeReplyIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		reply    string
		wantText string // in the error
		endless  bool   // also to HELLO, the first command
	}{
		"an endless line":        {strings.Repeat("x", 4096), "a line of more than 65536 bytes", true},
		"an endless status":      {"+" + strings.Repeat("x", 1<<17), "a line of more than 65536 bytes", false},
		"a huge string":          {"$99999999999\r\n", "a string of 99999999999 bytes, at most 67108864", false},
		"a string beyond 64 bit": {"$99999999999999999999999\r\n", "a string of 99999999999999999999999 bytes", false},
		"a huge list":            {"*2\r\n$1\r\n0\r\n*2000000000\r\n", "a list of 2000000000 elements, at most 1048576", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveReplies(t, test.reply, test.endless)
			_, _, err := s.scan(t.Context(), 0, "")
			if !isTooLarge(err) || !strings.Contains(err.Error(), test.wantText) {
				t.Errorf("got %v, expected an error about the size with %q", err, test.wantText)
			}
		})
	}
}

// Strings are not subject to the limit of lines, whatever they contain and wherever reads split
// them. Every round trip has a limit of its own.
func TestReplyLimitsFollowTheProtocol(t *testing.T) {
	long := strings.Repeat("*2000000000", maxReplyLine/8) // more than the limit of a line
	replies := fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$-1\r\n:1\r\n+OK\r\n-ERR no\r\n*-1\r\n$0\r\n\r\n", len(long), long)
	for _, size := range []int{1, 2, 7, 4096, len(replies)} {
		var c limitedConn
		for piece := range slices.Chunk([]byte(replies), size) {
			if err := c.checkReply(piece); err != nil {
				t.Fatalf("in pieces of %d bytes: got %v, expected no error", size, err)
			}
		}
		if c.stringBytes != 0 || c.lineBytes != 0 {
			t.Errorf("in pieces of %d bytes: got %d bytes left of a string and %d bytes of a line, expected complete replies",
				size, c.stringBytes, c.lineBytes)
		}
	}

	// Each of several round trips may have a long reply.
	s := serveReplies(t, fmt.Sprintf("*2\r\n$1\r\n0\r\n*1\r\n$%d\r\n%s\r\n", len(long), long), false)
	for range 3 {
		keys, _, err := s.scan(t.Context(), 0, "")
		if err != nil || len(keys) != 1 || keys[0] != long {
			t.Fatalf("got %d keys and %v, expected the long key", len(keys), err)
		}
	}

	// A single one has a limit.
	var c limitedConn
	c.read = maxReplyBytes
	if err := c.checkReply([]byte("+OK\r\n")); !isTooLarge(err) {
		t.Errorf("after %d bytes in a round trip: got %v, expected an error about the size", maxReplyBytes, err)
	}
}
