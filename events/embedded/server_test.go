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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
)

// childEnv makes the test binary a process that reads its input to the end.
const childEnv = "SKEIN_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

func mustStart(t *testing.T, dir string, logger *slog.Logger) *Server {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: dir, Stream: "test", Examined: 1 << 20, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, s) })
	return s
}

func mustStop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestServerSyncsAndOwnsItsDirectory: a server syncs before it acknowledges, has its directory for itself, and leaves a temporary one only while it runs.
func TestServerSyncsAndOwnsItsDirectory(t *testing.T) {
	s := mustStart(t, "", slog.New(slog.DiscardHandler))
	if !s.natsServer.Load().JetStreamConfig().SyncAlways {
		t.Error("the server acknowledges what is not on disk")
	}
	if _, err := Start(t.Context(), Options{Dir: s.Dir(), Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, events.ErrLocked) {
		t.Errorf("a second server: %v", err)
	}
	if err := errors.Join(s.Healthy(), s.Stuck()); err != nil {
		t.Error(err)
	}
	mustStop(t, s)
	if err := s.Healthy(); !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("it is stopped, and: %v", err)
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory stays: %v", err)
	}
}

// TestServerLogMapsLevels: what the embedded server says reaches the logger at levels that suit.
func TestServerLogMapsLevels(t *testing.T) {
	var out bytes.Buffer
	s := &serverLog{logger: slog.New(slog.NewTextHandler(&out, nil))}
	s.Noticef("n%d", 1)
	s.Warnf("w%d", 2)
	s.Errorf("e%d", 3)
	if got := s.lastErrorText(); got != "e3" {
		t.Errorf("the last error is %q", got)
	}
	s.Fatalf("f%d", 4)
	if got := out.String(); strings.Contains(got, "n1") || !strings.Contains(got, "level=WARN msg=\"nats: w2\"") ||
		!strings.Contains(got, "e3") || !strings.Contains(got, "f4") {
		t.Errorf("the log says\n%s", got)
	}
}

// messages returns what the stream has, by sequence, after it has published some.
func publishAndReadMessages(t *testing.T, s *Server, publish ...string) map[uint64]string {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
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

// TestDamagedMessageCostsNoOther: a message that is damaged is missing, those behind it are there, and a copy of the file as it was is kept. A
// whole file is left as it is.
func TestDamagedMessageCostsNoOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	var said bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelError}))
	s := mustStart(t, dir, logger)
	publishAndReadMessages(t, s, "one", "two", "three", "four")
	mustStop(t, s)
	paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "test", "msgs", "*"+blockSuffix))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	s = mustStart(t, dir, logger)
	if got := publishAndReadMessages(t, s); len(got) != 4 {
		t.Errorf("of a whole file there are %v", got)
	}
	mustStop(t, s)
	if again, err := os.ReadFile(paths[0]); err != nil || !bytes.Equal(again, whole) || said.Len() > 0 {
		t.Errorf("a whole file was changed, %v, and the server says %q", err, said.String())
	}
	damaged := bytes.Replace(whole, []byte("two"), []byte("tvo"), 1)
	if err := os.WriteFile(paths[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustStart(t, dir, logger)
	if got := fmt.Sprint(publishAndReadMessages(t, s)); got != "map[1:one 3:three 4:four]" {
		t.Errorf("there are %s", got)
	}
	if !strings.Contains(said.String(), "lost_first=2 lost_last=2") {
		t.Errorf("the server says %q", said.String())
	}
	kept, err := filepath.Glob(filepath.Join(dir+"-damaged-*", "*"+blockSuffix))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	if copied, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(copied, damaged) {
		t.Errorf("the copy is not the file as it was: %v", err)
	}
}
