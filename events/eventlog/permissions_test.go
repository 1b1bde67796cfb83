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

// startRestrictedServer starts a server with two users. The user of all may do everything. The user
// of some may not publish to the subjects of denyPublish, and may not subscribe to those of
// denySubscribe.
func startRestrictedServer(t *testing.T, denyPublish []string, denySubscribe ...string) (all, some Config) {
	t.Helper()
	ns := startTestServer(t, server.Options{Users: []*server.User{
		{Username: "all", Password: "-"},
		{Username: "some", Password: "-", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: denyPublish}, Subscribe: &server.SubjectPermission{Deny: denySubscribe},
		}},
	}})
	address := strings.TrimPrefix(ns.ClientURL(), "nats://")
	quiet := slog.New(slog.DiscardHandler)
	return Config{URL: "nats://all:-@" + address, Logger: quiet}, Config{URL: "nats://some:-@" + address, Logger: quiet}
}

// checkForbidden checks that err is an [events.ErrForbidden] that names the subject. A request that
// ran into its timeout would not know it.
func checkForbidden(t *testing.T, what string, err error, subject string) {
	t.Helper()
	if !errors.Is(err, events.ErrForbidden) || !strings.Contains(err.Error(), subject) {
		t.Errorf("%s: got error %v, want %v with %q", what, err, events.ErrForbidden, subject)
	}
}

// TestForbiddenRequestNamesItsSubject checks that a request without permission fails at once with an
// error that names the subject, although the server does not answer it.
func TestForbiddenRequestNamesItsSubject(t *testing.T) {
	checkLeaks(t)
	t.Run("open", func(t *testing.T) {
		for name, test := range map[string]struct {
			logExists                  bool
			denyPublish, denySubscribe []string
			wantSubject                string
		}{
			"read the stream": {
				true, []string{"$JS.API.STREAM.INFO.>"}, nil, "to publish to $JS.API.STREAM.INFO.SKEIN",
			},
			"create the stream": {
				false, []string{"$JS.API.STREAM.CREATE.SKEIN"}, nil, "to publish to $JS.API.STREAM.CREATE.SKEIN",
			},
			"receive answers": {true, nil, []string{"_INBOX.>"}, "to subscribe to _INBOX."},
		} {
			t.Run(name, func(t *testing.T) {
				all, some := startRestrictedServer(t, test.denyPublish, test.denySubscribe...)
				if test.logExists {
					mustOpenLog(t, all)
				}
				_, err := Open(testContext(t), some)
				checkForbidden(t, "open", err, test.wantSubject)
			})
		}
	})
	t.Run("publish", func(t *testing.T) {
		all, some := startRestrictedServer(t, []string{Subject})
		mustOpenLog(t, all)
		p := newPublisher(t, mustOpenLog(t, some), PublisherOptions{})
		_, err := p.Publish(testContext(t), []*skeinv1.Event{newFollow(1)}, PublishOptions{})
		checkForbidden(t, "publish", err, "to publish to skein.log")
		if !errors.Is(err, events.ErrRefused) || errors.Is(err, events.ErrOutcomeUnknown) {
			t.Errorf("forbidden Publish: got error %v, want %v and not %v", err, events.ErrRefused, events.ErrOutcomeUnknown)
		}
	})
	t.Run("read", func(t *testing.T) {
		all, some := startRestrictedServer(t, []string{"$JS.API.STREAM.MSG.GET.SKEIN"})
		l := mustOpenLog(t, all)
		mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
		cursor := readWholeLog(t, l)[0].Cursor

		restricted := mustOpenLog(t, some)
		checkForbidden(t, "check a cursor", restricted.CheckCursor(testContext(t), cursor), "$JS.API.STREAM.MSG.GET.SKEIN")
		_, err := restricted.ReadMessage(testContext(t), 1)
		checkForbidden(t, "read a message", err, "$JS.API.STREAM.MSG.GET.SKEIN")

		// Without the permission no message is lost, so Salvage must not report any.
		report, err := restricted.Salvage(testContext(t), l.Start(), nil, func([]*events.Envelope) error { return nil })
		checkForbidden(t, "salvage", err, "$JS.API.STREAM.MSG.GET.SKEIN")
		if len(report.Lost) > 0 {
			t.Errorf("salvage without the permission: got lost sequences %v, want none", report.Lost)
		}
	})
	t.Run("next epoch", func(t *testing.T) {
		for _, subject := range []string{streamUpdateSubject, pausedSubject, consumerNamesSubject} {
			all, some := startRestrictedServer(t, []string{subject})
			l := mustOpenLog(t, all)
			mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
			archive := &memoryArchive{envs: readWholeLog(t, l), archivedLen: 1}

			restricted := mustOpenLog(t, some)
			restricted.SetArchive(archive)
			_, err := restricted.NextEpoch(testContext(t), 0, nil, func(context.Context, uint64) (events.Cursor, error) {
				return archive.End(), nil
			})
			checkForbidden(t, "next epoch", err, subject)

			// The log accepts events again, in the old epoch or in the new one.
			mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(1, 2))
		}
	})
}

// lineWaiter is a writer for a logger. It closes seen after the first line that contains all the
// texts.
type lineWaiter struct {
	texts []string
	seen  chan struct{}
	once  sync.Once
}

// Write is part of io.Writer.
func (w *lineWaiter) Write(p []byte) (int, error) {
	lacksText := func(text string) bool { return !bytes.Contains(p, []byte(text)) }
	if !slices.ContainsFunc(w.texts, lacksText) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

// TestForbiddenWorkIsLoggedAndRetried checks that readers and holders of leases retry when they lack
// a permission, and that each attempt is logged with the subject that is missing.
func TestForbiddenWorkIsLoggedAndRetried(t *testing.T) {
	checkLeaks(t)
	read := func(ctx context.Context, t *testing.T, l *Log) error {
		h, _ := runHub(t, l, HubOptions{}) //nolint:contextcheck // it runs until it is closed
		_, err := mustSubscribe(t, h, l.Start()).Next(ctx, 1)
		return err
	}

	lease := func(ctx context.Context, _ *testing.T, l *Log) error {
		return l.RunWithLease(ctx, "archive", MinLease, func(context.Context) error { return errWorkDone })
	}
	for _, test := range []struct {
		subject string
		wantLog string
		work    func(context.Context, *testing.T, *Log) error
	}{
		{"$JS.API.CONSUMER.CREATE.SKEIN.", "reading was interrupted", read},
		{"$JS.API.CONSUMER.MSG.NEXT.SKEIN.", "reading was interrupted", read},
		{"$JS.API.STREAM.INFO.KV_SKEIN_LEASE", "the lease cannot be asked for", lease},
		{"$JS.API.INFO", "the lease cannot be asked for", lease},
		{"$JS.API.STREAM.CREATE.KV_SKEIN_LEASE", "the lease cannot be asked for", lease},
		{"$KV.SKEIN_LEASE.", "the lease cannot be asked for", lease},
	} {
		t.Run(test.subject, func(t *testing.T) {
			denied := test.subject
			if strings.HasSuffix(denied, ".") {
				denied += ">"
			}
			all, some := startRestrictedServer(t, []string{denied})
			mustPublish(t, newPublisher(t, mustOpenLog(t, all), PublisherOptions{}), newFollows(0, 1))

			wantError := events.ErrForbidden.Error() + ": to publish to " + test.subject
			w := &lineWaiter{texts: []string{test.wantLog, wantError}, seen: make(chan struct{})}
			some.Logger = slog.New(slog.NewTextHandler(w, nil))
			l := mustOpenLog(t, some)

			ctx, cancel := context.WithCancel(testContext(t))
			ended := make(chan error, 1)
			go func() { ended <- test.work(ctx, t, l) }()
			select {
			case <-w.seen:
			case err := <-ended:
				t.Fatalf("work: got error %v, want it to retry", err)
			case <-testContext(t).Done():
				t.Fatalf("log: got no line with %q, want one", w.texts)
			}

			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("work: got error %v, want %v", err, context.Canceled)
			}
		})
	}
}

// TestPausedLogWaitsForPermittedProcess checks that a log that an interrupted epoch has left paused
// can be opened only after a process with the permission has resumed it.
func TestPausedLogWaitsForPermittedProcess(t *testing.T) {
	checkLeaks(t)
	all, some := startRestrictedServer(t, []string{streamUpdateSubject})
	l := mustOpenLog(t, all)
	if _, err := l.pauseStream(testContext(t), time.Now()); err != nil {
		t.Fatal(err)
	}

	// Open retries until its context ends, which the log line about the missing permission causes
	// here.
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	some.Logger = slog.New(slog.NewTextHandler(textTrigger{streamUpdateSubject, cancel}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if _, err := Open(ctx, some); !errors.Is(err, context.Canceled) {
		t.Errorf("Open without the permission to resume: got error %v, want %v", err, context.Canceled)
	}

	mustOpenLog(t, all)
	some.Logger = nil
	mustOpenLog(t, some)
}

// textTrigger is a writer for a logger. It calls action for each line that contains the text.
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

// TestInboxPrefixIsUsedForAllAnswers checks that all answers, also those to readers, go to subjects
// with the inbox prefix of the configuration, and that malformed prefixes are rejected.
func TestInboxPrefixIsUsedForAllAnswers(t *testing.T) {
	checkLeaks(t)
	all, some := startRestrictedServer(t, nil, "_INBOX.>")
	all.InboxPrefix = "_INBOX_all"
	some.InboxPrefix = "_INBOX_some"
	mustPublish(t, newPublisher(t, mustOpenLog(t, all), PublisherOptions{}), newFollows(0, 3))
	if envs := readWholeLog(t, mustOpenLog(t, some)); len(countFollowers(envs)) != 3 {
		t.Errorf("events of %d envelopes: got %d, want 3", len(envs), len(countFollowers(envs)))
	}

	for _, bad := range []string{"a b", "a.", ".a", "a..b", "a.*", ">"} {
		some.InboxPrefix = bad
		if _, err := Open(testContext(t), some); err == nil || !strings.Contains(err.Error(), "inbox prefix") {
			t.Errorf("Open with prefix %q: got error %v, want one about the inbox prefix", bad, err)
		}
	}
}
