package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/leaktest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// readUserTable reads the table of docs/operations.md, which says to which subjects each user of
// the NATS servers may publish. It returns the subjects of each user.
func readUserTable(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| user | has as well | publishes to | is |\n|---|---|---|---|\n")
	if !ok {
		t.Fatal("docs/operations.md has no table of users")
	}

	// Names and subjects are in backquotes.
	quoted := regexp.MustCompile("`([^`]+)`")
	quotedWords := func(cell string) (words []string) {
		for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
			words = append(words, match[1])
		}
		return words
	}

	users := map[string][]string{}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}

		cells := strings.Split(line, "|")
		name := quotedWords(cells[1])[0]
		subjects := quotedWords(cells[3])
		// The user also has the subjects of the users in the second column.
		for _, other := range quotedWords(cells[2]) {
			if users[other] == nil {
				t.Fatalf("%s is to have what %q has, which no row before says", name, other)
			}
			subjects = append(subjects, users[other]...)
		}
		users[name] = subjects
	}
	return users
}

// natsWithUsers is a NATS server with the users of the table, and an administrator.
type natsWithUsers struct {
	t              *testing.T
	addr           string // host and port
	adminJetStream jetstream.JetStream
}

// startNATSWithUsers starts the server. Each user may only subscribe to its own inbox.
func startNATSWithUsers(t *testing.T) *natsWithUsers {
	t.Helper()
	users := []*natsserver.User{{Username: "root", Password: "-"}}
	for name, subjects := range readUserTable(t) {
		users = append(users, &natsserver.User{Username: name, Password: "-", Permissions: &natsserver.Permissions{
			Publish:   &natsserver.SubjectPermission{Allow: subjects},
			Subscribe: &natsserver.SubjectPermission{Allow: []string{inboxPrefix(name) + ".>"}},
		}})
	}

	server := startNATS(t, users...)
	n := &natsWithUsers{t: t, addr: strings.TrimPrefix(server.ClientURL(), "nats://")}
	js, err := jetstream.New(n.connect("root", "_INBOX", nil))
	if err != nil {
		t.Fatal(err)
	}
	n.adminJetStream = js
	return n
}

// inboxPrefix returns the prefix of the inboxes of a user.
func inboxPrefix(user string) string { return "_INBOX_" + user }

func (n *natsWithUsers) url(user string) string { return "nats://" + user + ":-@" + n.addr }

// connect connects as a user, as a program without skein does. The connection passes errors, such
// as refusals of the server, to onError, unless onError is nil.
func (n *natsWithUsers) connect(user, inbox string, onError func(error)) *nats.Conn {
	n.t.Helper()
	handleError := func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if onError != nil {
			onError(err)
		}
	}
	nc, err := nats.Connect(n.url(user), nats.CustomInboxPrefix(inbox), nats.ErrorHandler(handleError))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(nc.Close)
	return nc
}

// logConfig returns the configuration with which a user opens the log.
func (n *natsWithUsers) logConfig(user string, logger *slog.Logger) eventlog.Config {
	c := (&flags.NATSFlags{NATS: n.url(user), NATSInbox: inboxPrefix(user)}).Config("")
	c.Logger = logger
	return c
}

// openLog opens the log as a user until the end of the test.
func (n *natsWithUsers) openLog(t *testing.T, user string, logger *slog.Logger) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), n.logConfig(user, logger))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return log
}

// startServiceAs runs the service as a user, with its own data directory.
func (n *natsWithUsers) startServiceAs(t *testing.T, user string, logger *slog.Logger, b bucket.Bucket) (api *command.Client, stop func()) {
	t.Helper()
	return startService(t, t.TempDir(), logger, func(o *service.Options) {
		o.Log = n.logConfig(user, logger)
		o.Maintenance = service.MaintenanceOptions{Archive: b, ArchiveEvery: time.Hour, Retention: time.Nanosecond, AuditShare: 0.05}
	})
}

// TestNATSUsersCanDoTheirWork does the work of each user of docs/operations.md with the permissions
// that the page gives to that user.
func TestNATSUsersCanDoTheirWork(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaktest.Verify(t, leaks) })
	n := startNATSWithUsers(t)
	archive, err := bucket.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	archivePath := fmt.Sprint(archive)

	// Each user continues with the log that the users before it left. At last, the publisher must
	// be able to append to the log that was restored.
	for _, tt := range []struct {
		user string
		work func(t *testing.T, user string, logger *slog.Logger)
	}{
		{"founder", n.serveWithoutArchive},
		{"publisher", n.appendEvent},
		{"reader", n.readEverything},
		{"server", n.serveWithoutArchive},
		{"archiver", func(t *testing.T, user string, logger *slog.Logger) { n.archiveLog(t, user, logger, archive) }},
		{"eraser", func(t *testing.T, user string, logger *slog.Logger) { n.eraseUser(t, user, logger, archive) }},
		{"restorer", func(t *testing.T, user string, _ *slog.Logger) { n.restoreLog(t, user, archivePath) }},
		{"replacer", func(t *testing.T, user string, _ *slog.Logger) { n.replaceStream(t, user, archivePath) }},
		{"publisher", n.appendEvent},
	} {
		hasPassed := t.Run(tt.user, func(t *testing.T) {
			var log syncBuffer
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log.String())
				}
			})
			tt.work(t, tt.user, slog.New(slog.NewTextHandler(&log, nil)))

			// No permission may have been lacking, even if the work succeeded without it.
			text := log.String()
			if tt.user == "archiver" { // archiveLog also tries to erase, which this user may not
				text = strings.ReplaceAll(text, "$JS.API.STREAM.INFO.KV_skein-cluster-", "")
			}
			if strings.Contains(text, events.ErrForbidden.Error()+": to publish to $") || strings.Contains(text, "level=ERROR") {
				t.Errorf("the log of user %s has an error or a refused permission, want neither", tt.user)
			}
		})
		if !hasPassed {
			return
		}
	}
}

// serveWithoutArchive runs the service without an archive.
func (n *natsWithUsers) serveWithoutArchive(t *testing.T, user string, logger *slog.Logger) {
	api, stop := n.startServiceAs(t, user, logger, nil)
	defer stop()
	mustPublish(t, api, userFollowed("ann", "bob"))
}

// appendEvent appends an event without reading anything.
func (n *natsWithUsers) appendEvent(t *testing.T, user string, logger *slog.Logger) {
	publisher, err := eventlog.Dial(t.Context(), n.logConfig(user, logger), eventlog.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()

	res, err := publisher.Publish(t.Context(), []*skeinv1.Event{userFollowed("cid", "bob")}, eventlog.PublishOptions{})
	if err != nil {
		t.Errorf("Publish as %s: %v", user, err)
	} else if res.Position.Seq == 0 {
		t.Errorf("Publish as %s: got %+v, want a sequence number", user, res)
	}
}

// readLog reads all envelopes of the log.
func readLog(ctx context.Context, t *testing.T, log *eventlog.Log) (envelopes []*events.Envelope) {
	t.Helper()
	head, err := log.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}

	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	defer func() {
		hub.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	sub, err := hub.Subscribe(log.Start())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for len(envelopes) == 0 || envelopes[len(envelopes)-1].Seq() < head.Last {
		next, err := sub.Next(ctx, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		envelopes = append(envelopes, next...)
	}
	return envelopes
}

// readEverything reads the whole log, checks a cursor, and finds a sequence by time.
func (n *natsWithUsers) readEverything(t *testing.T, user string, logger *slog.Logger) {
	log := n.openLog(t, user, logger)
	envelopes := readLog(t.Context(), t, log)
	if len(envelopes) < 2 {
		t.Errorf("the log has %d envelopes, want at least 2", len(envelopes))
	}
	if err := log.CheckCursor(t.Context(), envelopes[0].Cursor); err != nil {
		t.Errorf("CheckCursor: %v", err)
	}
	if _, err := log.SeqBefore(t.Context(), time.Now()); err != nil {
		t.Errorf("SeqBefore: %v", err)
	}
}

// fixedArchiveEnd claims that everything up to a cursor of the stream is archived.
type fixedArchiveEnd struct {
	events.Archive
	end events.Cursor
}

// End is part of events.Archive.
func (a fixedArchiveEnd) End() events.Cursor { return a.end }

// TestOnlyArchiverCanTrim demands that an archiver can trim the log, and that a server cannot, even
// if it believes that the log is archived.
func TestOnlyArchiverCanTrim(t *testing.T) {
	t.Parallel()
	n := startNATSWithUsers(t)
	logger := slog.New(slog.DiscardHandler)
	n.serveWithoutArchive(t, "founder", logger)
	n.appendEvent(t, "publisher", logger)
	n.appendEvent(t, "publisher", logger)

	// Trim the first envelope as the archiver.
	log := n.openLog(t, "archiver", logger)
	envelopes := readLog(t.Context(), t, log)
	end := envelopes[len(envelopes)-1].Cursor
	end.WarmSeq = end.Seq
	log.SetArchive(fixedArchiveEnd{end: end})
	trimmed, err := log.Trim(t.Context(), envelopes[0].Seq())
	if err != nil || trimmed != 1 {
		t.Errorf("Trim as the archiver: got %d envelopes and %v, want 1 and no error", trimmed, err)
	}

	// The NATS server must refuse the same to a server.
	log = n.openLog(t, "server", logger)
	log.SetArchive(fixedArchiveEnd{end: end})
	_, err = log.Trim(t.Context(), end.Seq-1)
	const refusedSubject = "$JS.API.STREAM.PURGE.SKEIN"
	if !errors.Is(err, events.ErrForbidden) || !strings.Contains(err.Error(), refusedSubject) {
		t.Errorf("Trim as a server: got %v, want %v with %s", err, events.ErrForbidden, refusedSubject)
	}
}

// waitUntilArchiving waits until a service has the lease and archives.
func waitUntilArchiving(t *testing.T, api *command.Client) {
	t.Helper()
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		status, err := getStatus(ctx, api)
		if err != nil {
			return err
		}
		if !status.GetArchive().GetArchiving() {
			return fmt.Errorf("the service does not archive yet: %v", status.GetArchive())
		}
		return nil
	})
}

// archiveLog takes the lease and archives. Erasing must be refused.
func (n *natsWithUsers) archiveLog(t *testing.T, user string, logger *slog.Logger, b bucket.Bucket) {
	api, stop := n.startServiceAs(t, user, logger, b)
	defer stop()
	mustPublish(t, api, userFollowed("dan", "bob"))
	waitUntilArchiving(t, api)

	const refusal = "lacks a permission: to publish to $JS.API.STREAM.INFO.KV_skein-cluster-"
	checkRun(t, exitFailed, "", refusal, "replay", "erase", "cid", "--yes", "--server="+api.URL)
}

// eraseUser erases a user from the archive and the log, which gets a new epoch.
func (n *natsWithUsers) eraseUser(t *testing.T, user string, logger *slog.Logger, b bucket.Bucket) {
	api, stop := n.startServiceAs(t, user, logger, b)
	defer stop()
	waitUntilArchiving(t, api)
	checkRun(t, exitOK, "epoch 2 ", "", "replay", "erase", "cid", "--yes", "--server="+api.URL)
}

// restoreLog restores the log after the servers have lost it.
func (n *natsWithUsers) restoreLog(t *testing.T, user, archive string) {
	if err := n.adminJetStream.DeleteStream(t.Context(), eventlog.StreamName); err != nil {
		t.Fatal(err)
	}
	checkRun(t, exitOK, "epoch 4", "", "replay", "archive", "restore", "--data="+t.TempDir(), "--archive="+archive,
		"--nats="+n.url(user), "--nats-inbox="+inboxPrefix(user))
}

// replaceStream restores the log in place of a stream that the servers still have.
func (n *natsWithUsers) replaceStream(t *testing.T, user, archive string) {
	checkRun(t, exitOK, "epoch 6", "", "replay", "archive", "restore", "--force", "--replace-stream", "--data="+t.TempDir(),
		"--archive="+archive, "--nats="+n.url(user), "--nats-inbox="+inboxPrefix(user))
}

// TestNATSUsersHaveNoFurtherPermissions compares the permissions of each user on the log, as the
// NATS servers apply them, with a table: no other user can destroy the log, and a user without the
// permission cannot read, write or shorten it.
func TestNATSUsersHaveNoFurtherPermissions(t *testing.T) {
	t.Parallel()
	n := startNATSWithUsers(t)

	// Each action needs permission to publish to all of its subjects.
	actions := map[string][]string{
		"publish":   {"skein.log"},
		"read":      {"$JS.API.STREAM.MSG.GET.SKEIN", "$JS.API.CONSUMER.CREATE.SKEIN.x", "$JS.API.CONSUMER.MSG.NEXT.SKEIN.x"},
		"create":    {"$JS.API.STREAM.CREATE.SKEIN"},
		"trim":      {"$JS.API.STREAM.PURGE.SKEIN"},
		"lease":     {"$KV.SKEIN_LEASE.x", "$JS.API.STREAM.CREATE.KV_SKEIN_LEASE"},
		"configure": {"$JS.API.STREAM.UPDATE.SKEIN", "skein.paused"},
		"delete":    {"$JS.API.STREAM.DELETE.SKEIN"},
		"destroy": {
			"$JS.API.STREAM.MSG.DELETE.SKEIN", "$JS.API.STREAM.PURGE.KV_SKEIN_LEASE",
			"$JS.API.STREAM.RESTORE.SKEIN", "$JS.API.STREAM.SNAPSHOT.SKEIN", "$JS.API.STREAM.UPDATE.KV_SKEIN_LEASE",
		},
	}
	want := map[string][]string{
		"publisher": {"publish"},
		"reader":    {"read"},
		"server":    {"publish", "read"},
		"founder":   {"create", "publish", "read"},
		"archiver":  {"lease", "publish", "read", "trim"},
		"eraser":    {"configure", "create", "lease", "publish", "read", "trim"},
		"restorer":  {"create"},
		"replacer":  {"configure", "create", "delete", "read"},
	}

	got := map[string][]string{}
	for user := range readUserTable(t) {
		refusals := make(chan string, 1)
		nc := n.connect(user, inboxPrefix(user), func(err error) { refusals <- err.Error() })

		// The server reports refusals in order. So a request was permitted if it was not refused
		// before the last subject, which is always refused.
		isForbidden := func(send func() error) bool {
			t.Helper()
			if err := send(); err != nil {
				t.Fatal(err)
			}
			const lastSubject = "nobody.may"
			if err := nc.Publish(lastSubject, nil); err != nil {
				t.Fatal(err)
			}

			forbidden := false
			for text := range refusals {
				if strings.Contains(text, `"`+lastSubject+`"`) {
					break
				}
				forbidden = true
			}
			return forbidden
		}

		for action, subjects := range actions {
			permitted := 0
			for _, subject := range subjects {
				request := func() error { return nc.PublishRequest(subject, inboxPrefix(user)+".x", []byte("{")) }
				if !isForbidden(request) {
					permitted++
				}
			}

			switch permitted {
			case len(subjects):
				got[user] = append(got[user], action)
			case 0:
			default:
				t.Errorf("%s may publish to %d of the %d subjects for %q, want all or none", user, permitted, len(subjects), action)
			}
		}
		slices.Sort(got[user])

		// Nobody may read what is sent to other users.
		for _, subject := range []string{"_INBOX.>", "_INBOX_root.>", "skein.>", "$JS.ACK.>", ">"} {
			subscribe := func() error {
				_, err := nc.SubscribeSync(subject)
				return err
			}
			if !isForbidden(subscribe) {
				t.Errorf("%s may subscribe to %s, want a refusal", user, subject)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("permissions of the users (-want +got):\n%s", diff)
	}
}
