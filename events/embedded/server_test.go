package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
)

// childEnv is the environment variable that makes the test binary read its input to the end and do
// nothing else.
const childEnv = "SKEIN_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	testmain.Run(m)
}

// mustStart starts a server on a directory until the end of the test.
func mustStart(t *testing.T, dir string, logger *slog.Logger) *Server {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: dir, Stream: "test", VerifyBytes: 1 << 20, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, s) })
	return s
}

// mustStop stops a server.
func mustStop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestServerSyncsAndOwnsItsDirectory checks that a server syncs before it acknowledges, that no
// second server can use its directory, and that it removes a temporary directory when it stops.
func TestServerSyncsAndOwnsItsDirectory(t *testing.T) {
	s := mustStart(t, "", slog.New(slog.DiscardHandler))
	if !s.natsServer.Load().JetStreamConfig().SyncAlways {
		t.Error("SyncAlways: got false, want true")
	}

	_, err := Start(t.Context(), Options{Dir: s.Dir(), Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, events.ErrLocked) {
		t.Errorf("second server on the directory: got error %v, want %v", err, events.ErrLocked)
	}

	if err := errors.Join(s.Healthy(), s.Stuck()); err != nil {
		t.Error(err)
	}

	mustStop(t, s)
	if err := s.Healthy(); !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("health of a stopped server: got error %v, want %v", err, events.ErrLogUnavailable)
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the temporary directory after Stop: got error %v, want %v", err, os.ErrNotExist)
	}
}

// TestStartFailsAtOnceWithoutJetStream checks that Start fails as soon as the NATS server has given
// up, with the error of that server.
func TestStartFailsAtOnceWithoutJetStream(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := Start(t.Context(), Options{Dir: dir, Stream: "test", Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "storage directory is not a directory") {
		t.Errorf("got error %v, want that of the NATS server", err)
	}
	if took := time.Since(began); took >= time.Minute {
		t.Errorf("time until the error: got %v, want less than a minute", took)
	}
}

// TestServerWithoutJetStreamIsStuck disables JetStream as the NATS server does when a write fails
// with EACCES. A restart must enable JetStream again.
func TestServerWithoutJetStreamIsStuck(t *testing.T) {
	s := mustStart(t, "", slog.New(slog.DiscardHandler))
	if err := s.natsServer.Load().ShutdownJetStream(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stuck(); !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("without JetStream: got error %v, want %v", err, events.ErrLogUnavailable)
	}

	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Healthy(), s.Stuck()); err != nil {
		t.Errorf("after the restart: got error %v, want none", err)
	}
}

// TestServerLogMapsLevels checks that warnings and errors of the server become warnings, and that
// notices become debug lines.
func TestServerLogMapsLevels(t *testing.T) {
	var out bytes.Buffer
	s := &serverLog{logger: slog.New(slog.NewTextHandler(&out, nil))}
	s.Noticef("n%d", 1)
	s.Warnf("w%d", 2)
	s.Errorf("e%d", 3)
	if got := s.lastErrorText(); got != "e3" {
		t.Errorf("last error: got %q, want e3", got)
	}

	s.Fatalf("f%d", 4)
	got := out.String()
	for _, want := range []string{`level=WARN msg="nats: w2"`, "e3", "f4"} {
		if !strings.Contains(got, want) {
			t.Errorf("log lines: got\n%s\nwant %q among them", got, want)
		}
	}
	if strings.Contains(got, "n1") {
		t.Errorf("log lines: got\n%s\nwant no notice n1", got)
	}
}

// connectClient connects to a server, which may take a minute for that and for each answer.
func connectClient(t *testing.T, s *Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// publishAndReadMessages publishes messages and then returns all messages of the stream by
// sequence.
func publishAndReadMessages(t *testing.T, s *Server, publish ...string) map[uint64]string {
	t.Helper()
	nc, js := connectClient(t, s)
	defer nc.Close()
	stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "test", Subjects: []string{"test"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range publish {
		if _, err := js.Publish(t.Context(), "test", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}

	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]string{}
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got[seq] = string(msg.Data)
	}

	return got
}

// TestDamagedMessageCostsNoOther damages a message in a block file. After a restart of the server
// only that message is missing, and there is a copy of the damaged file. An undamaged file is not
// changed.
func TestDamagedMessageCostsNoOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
	s := mustStart(t, dir, logger)
	publishAndReadMessages(t, s, "one", "two", "three", "four")
	mustStop(t, s)

	paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "test", "msgs", "*"+blockSuffix))
	if err != nil || len(paths) != 1 {
		t.Fatalf("block files: got %v and error %v, want one", paths, err)
	}
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}

	// A restart does not change an undamaged file.
	s = mustStart(t, dir, logger)
	if got := publishAndReadMessages(t, s); len(got) != 4 {
		t.Errorf("messages of the undamaged file: got %v, want 4", got)
	}
	mustStop(t, s)
	if again, err := os.ReadFile(paths[0]); err != nil || !bytes.Equal(again, whole) {
		t.Errorf("undamaged file after a restart: got %d bytes and error %v, want the same %d bytes", len(again), err, len(whole))
	}
	if logged.Len() > 0 {
		t.Errorf("log lines about the undamaged file: got %q, want none", logged.String())
	}

	// A restart after damage loses one message, and copies the damaged file.
	damaged := bytes.Replace(whole, []byte("two"), []byte("tvo"), 1)
	if err := os.WriteFile(paths[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustStart(t, dir, logger)
	if got := fmt.Sprint(publishAndReadMessages(t, s)); got != "map[1:one 3:three 4:four]" {
		t.Errorf("messages of the damaged file: got %s, want all but 2", got)
	}
	if !strings.Contains(logged.String(), "lost_first=2 lost_last=2") {
		t.Errorf("log lines: got %q, want the loss of 2", logged.String())
	}

	copies, err := filepath.Glob(filepath.Join(dir+"-damaged-*", "*"+blockSuffix))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies of the damaged file: got %v and error %v, want one", copies, err)
	}
	if copied, err := os.ReadFile(copies[0]); err != nil || !bytes.Equal(copied, damaged) {
		t.Errorf("copy of the damaged file: got other bytes or error %v, want the file as it was", err)
	}
}
