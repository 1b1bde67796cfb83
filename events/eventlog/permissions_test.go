package eventlog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// restrictedServer has an administrator, and a user who may not publish to some subjects, nor receive on others.
func startRestrictedServer(t *testing.T, denied []string, deaf ...string) (all, some Config) {
	t.Helper()
	ns := startTestServer(t, server.Options{Users: []*server.User{
		{Username: "all", Password: "-"},
		{Username: "some", Password: "-", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: denied}, Subscribe: &server.SubjectPermission{Deny: deaf},
		}},
	}})
	at := strings.TrimPrefix(ns.ClientURL(), "nats://")
	quiet := slog.New(slog.DiscardHandler)
	return Config{URL: "nats://all:-@" + at, Logger: quiet}, Config{URL: "nats://some:-@" + at, Logger: quiet}
}

// wantForbidden demands an error that names the subject: what times out does not know it.
func checkForbidden(t *testing.T, what string, err error, subject string) {
	t.Helper()
	if !errors.Is(err, events.ErrForbidden) || !strings.Contains(err.Error(), subject) {
		t.Errorf("%s: %v, want one that names %s", what, err, subject)
	}
}

// What a user may not ask is refused by name and at once, though the server answers nothing.
func TestForbiddenRequestNamesItsSubject(t *testing.T) {
	checkLeaks(t)
	t.Run("open", func(t *testing.T) {
		for _, c := range []struct {
			exists       bool
			denied, deaf []string
			subject      string
		}{
			{true, []string{"$JS.API.STREAM.INFO.>"}, nil, "to publish to $JS.API.STREAM.INFO.SKEIN"},
			{false, []string{"$JS.API.STREAM.CREATE.SKEIN"}, nil, "to publish to $JS.API.STREAM.CREATE.SKEIN"},
			{true, nil, []string{"_INBOX.>"}, "to subscribe to _INBOX."},
		} {
			all, some := startRestrictedServer(t, c.denied, c.deaf...)
			if c.exists {
				mustOpenLog(t, all)
			}
			_, err := Open(testContext(t), some)
			checkForbidden(t, "open", err, c.subject)
		}
	})
	t.Run("publish", func(t *testing.T) {
		all, some := startRestrictedServer(t, []string{Subject})
		mustOpenLog(t, all)
		p := newPublisher(t, mustOpenLog(t, some), PublisherOptions{})
		_, err := p.Publish(testContext(t), []*skeinv1.Event{newFollow(1)}, PublishOptions{})
		checkForbidden(t, "publish", err, "to publish to skein.log")
		if !errors.Is(err, events.ErrRefused) || errors.Is(err, events.ErrOutcomeUnknown) {
			t.Errorf("what is forbidden was not taken: %v", err)
		}
	})
	t.Run("read", func(t *testing.T) {
		all, some := startRestrictedServer(t, []string{"$JS.API.STREAM.MSG.GET.SKEIN"})
		l := mustOpenLog(t, all)
		mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
		at := readWholeLog(t, l)[0].Cursor
		bad := mustOpenLog(t, some)
		checkForbidden(t, "check", bad.CheckCursor(testContext(t), at), "$JS.API.STREAM.MSG.GET.SKEIN")
		_, err := bad.ReadMessage(testContext(t), 1)
		checkForbidden(t, "read a message", err, "$JS.API.STREAM.MSG.GET.SKEIN")
	})
	t.Run("next epoch", func(t *testing.T) {
		for _, subject := range []string{streamUpdateSubject, pausedSubject, consumerNamesSubject} {
			all, some := startRestrictedServer(t, []string{subject})
			l := mustOpenLog(t, all)
			mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
			past := &memoryArchive{envs: readWholeLog(t, l), archivedLen: 1}
			bad := mustOpenLog(t, some)
			bad.SetArchive(past)
			_, err := bad.NextEpoch(testContext(t), 0, func(context.Context, uint64) (events.Cursor, error) { return past.End(), nil })
			checkForbidden(t, "next epoch", err, subject)
			// In whichever epoch: it continues.
			mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(1, 2))
		}
	})
}

// told is where a logger writes until it has written a line with some texts.
type lineWaiter struct {
	texts []string
	seen  chan struct{}
	once  sync.Once
}

// Write is part of io.Writer.
func (w *lineWaiter) Write(p []byte) (int, error) {
	if !slices.ContainsFunc(w.texts, func(text string) bool { return !bytes.Contains(p, []byte(text)) }) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

// What continues for as long as the process says at each attempt what keeps it from continuing.
func TestForbiddenWorkIsLoggedAndRetried(t *testing.T) {
	checkLeaks(t)
	read := func(ctx context.Context, l *Log) error {
		h, _ := runHub(t, l, HubOptions{}) //nolint:contextcheck // it runs until it is closed
		_, err := mustSubscribe(t, h, l.Start()).Next(ctx, 1)
		return err
	}
	lease := func(ctx context.Context, l *Log) error {
		return l.WhileLeased(ctx, "archive", MinLease, func(context.Context) error { return errWorkDone })
	}
	for _, c := range []struct {
		subject string
		says    string
		work    func(context.Context, *Log) error
	}{
		{"$JS.API.CONSUMER.CREATE.SKEIN.", "reading was interrupted", read},
		{"$JS.API.CONSUMER.MSG.NEXT.SKEIN.", "reading was interrupted", read},
		{"$JS.API.STREAM.INFO.KV_SKEIN_LEASE", "the lease cannot be asked for", lease},
		{"$JS.API.INFO", "the lease cannot be asked for", lease},
		{"$JS.API.STREAM.CREATE.KV_SKEIN_LEASE", "the lease cannot be asked for", lease},
		{"$KV.SKEIN_LEASE.", "the lease cannot be asked for", lease},
	} {
		denied := c.subject
		if strings.HasSuffix(denied, ".") {
			denied += ">"
		}
		all, some := startRestrictedServer(t, []string{denied})
		mustPublish(t, newPublisher(t, mustOpenLog(t, all), PublisherOptions{}), newFollows(0, 1))
		w := &lineWaiter{texts: []string{c.says, events.ErrForbidden.Error() + ": to publish to " + c.subject}, seen: make(chan struct{})}
		some.Logger = slog.New(slog.NewTextHandler(w, nil))
		l := mustOpenLog(t, some)
		ctx, cancel := context.WithCancel(testContext(t))
		ended := make(chan error, 1)
		go func() { ended <- c.work(ctx, l) }()
		select {
		case <-w.seen:
		case err := <-ended:
			t.Fatalf("%s: it ended with %v", c.subject, err)
		case <-testContext(t).Done():
			t.Fatalf("%s: no line says %q", c.subject, w.texts)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", c.subject, err)
		}
	}
}

// A log that an interrupted epoch has left paused waits for a process with the permission to resume it.
func TestPausedLogWaitsForPermittedProcess(t *testing.T) {
	checkLeaks(t)
	all, some := startRestrictedServer(t, []string{streamUpdateSubject})
	l := mustOpenLog(t, all)
	if err := l.pauseStream(testContext(t), time.Now()); err != nil {
		t.Fatal(err)
	}
	// It tries until its context ends, here once it has said why.
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	some.Logger = slog.New(slog.NewTextHandler(textTrigger{streamUpdateSubject, cancel}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if _, err := Open(ctx, some); !errors.Is(err, context.Canceled) {
		t.Errorf("who may not resume the log: %v", err)
	}
	mustOpenLog(t, all)
	some.Logger = nil
	mustOpenLog(t, some)
}

// hears is where a log is written to, and does something when it hears a text.
type textTrigger struct {
	text   string
	action func()
}

// Write implements [io.Writer].
func (h textTrigger) Write(line []byte) (int, error) {
	if strings.Contains(string(line), h.text) {
		h.action()
	}
	return len(line), nil
}

// The subjects of answers begin as the configuration says, those of readers too.
func TestInboxPrefixIsUsedForAllAnswers(t *testing.T) {
	checkLeaks(t)
	all, some := startRestrictedServer(t, nil, "_INBOX.>")
	all.InboxPrefix, some.InboxPrefix = "_INBOX_all", "_INBOX_some"
	mustPublish(t, newPublisher(t, mustOpenLog(t, all), PublisherOptions{}), newFollows(0, 3))
	if envs := readWholeLog(t, mustOpenLog(t, some)); len(countFollowers(envs)) != 3 {
		t.Errorf("read %d envelopes", len(envs))
	}
	for _, bad := range []string{"a b", "a.", ".a", "a..b", "a.*", ">"} {
		some.InboxPrefix = bad
		if _, err := Open(testContext(t), some); err == nil || !strings.Contains(err.Error(), "inbox prefix") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
