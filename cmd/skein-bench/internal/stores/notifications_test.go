package stores

import (
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/projections/notifications"
)

// TestNotificationRunsHaveDifferentFacts demands what the comparison of skein with Redis needs: no
// notification repeats another one, and no two of a recipient have the same time.
func TestNotificationRunsHaveDifferentFacts(t *testing.T) {
	const recipients = 5000
	type fact struct {
		recipient, actor, pin, repin uint32
	}
	facts := make(map[fact]bool)
	last := make(map[uint32]notification)
	trimmed := 0
	runs, err := notificationRuns(3, 10_000, recipients)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		for _, n := range run {
			f := fact{n.recipient, n.actor, n.pin, n.repin}
			if facts[f] {
				t.Fatalf("%+v is a repetition", n)
			}
			facts[f] = true
			if before, ok := last[n.recipient]; ok && before.at >= n.at {
				t.Fatalf("%+v is not later than %+v", n, before)
			}
			last[n.recipient] = n
			if n.recipient >= recipients || n.actor < recipients || n.actor >= 2*recipients {
				t.Fatalf("%+v has a wrong recipient or actor", n)
			}
		}
	}
	for _, list := range keptNotifications(runs) {
		if len(list) == notificationsKept {
			trimmed++
		}
	}
	if trimmed == 0 {
		t.Errorf("no recipient received more than the %d notifications that are kept", notificationsKept)
	}
	if _, err := notificationRuns(3, 10_000, 100); err == nil || !strings.Contains(err.Error(), "--readers") {
		t.Errorf("100 users cannot receive 30000 different notifications: %v", err)
	}
}

// TestNotificationStoresAnswerAsExpected folds the notifications of a few users, and reads what the
// bench reads.
func TestNotificationStoresAnswerAsExpected(t *testing.T) {
	s, err := openNotificationStores(&measure.Bench{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.closeAndRemove(); err != nil {
			t.Error(err)
		}
	})
	classes := notifiedClasses(2)
	log, err := encodeClasses(classes)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.fold(t.Context(), log); err != nil {
		t.Fatal(err)
	}

	for _, c := range classes {
		t.Run(c.title, func(t *testing.T) {
			for _, user := range c.users {
				expected := c.expectedGroups(user)
				if n := len(expected); n <= feedPageSize || n > maxBadge {
					t.Errorf("there are %d groups, want more than a page and at most %d", n, maxBadge)
				}
				if err := s.check(t.Context(), workload.UserID(user), expected); err != nil {
					t.Error(err)
				}

				// An answer that has too much is noticed.
				if err := s.check(t.Context(), workload.UserID(user), expected[1:]); err == nil {
					t.Error("a wrong page was not noticed")
				}
			}
		})
	}
}

func TestUsersSeePartOfWhatTheyReceived(t *testing.T) {
	for _, c := range notifiedClasses(1) {
		t.Run(c.title, func(t *testing.T) {
			hidden := make(map[string]int)
			for _, n := range c.notificationsOf(c.users[0]) {
				switch {
				case n.isVisible():
					continue
				case isMuted(n.actor):
					hidden["muted"]++
				case isBlocked(n.actor):
					hidden["blocked"]++
				case n.kind == notifications.Repinned && isDeletedRepin(n.repin):
					hidden["re-pin deleted"]++
				default:
					hidden["pin deleted"]++
				}
			}
			for _, reason := range []string{"muted", "blocked", "re-pin deleted", "pin deleted"} {
				if hidden[reason] == 0 {
					t.Errorf("no notification is hidden for this reason: %s", reason)
				}
			}
		})
	}
}

func TestNotificationCommandsAreEncoded(t *testing.T) {
	n := notification{at: 9, kind: notifications.Reacted, recipient: 1, actor: 2, pin: 3}
	want := "*5\r\n$4\r\nZADD\r\n$17\r\nn:r:1000000000001\r\n$2\r\nNX\r\n$1\r\n9\r\n$32\r\n1000000000003 1000000000002 like\r\n" +
		"*4\r\n$15\r\nZREMRANGEBYRANK\r\n$17\r\nn:r:1000000000001\r\n$1\r\n0\r\n$5\r\n-1001\r\n"
	if got := string(appendNotification(nil, n)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
