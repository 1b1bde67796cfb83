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
	runs, err := notificationRuns(3, 10_000, recipients)
	if err != nil {
		t.Fatal(err)
	}

	seen := make(map[fact]bool)
	lastOfRecipient := make(map[uint32]notification)
	for _, run := range runs {
		for _, n := range run {
			f := fact{n.recipient, n.actor, n.pin, n.repin}
			if seen[f] {
				t.Fatalf("notification %+v: got it twice, want it once", n)
			}
			seen[f] = true

			if last, ok := lastOfRecipient[n.recipient]; ok && last.at >= n.at {
				t.Fatalf("notification %+v: got it at the same time as %+v or earlier, want it later", n, last)
			}
			lastOfRecipient[n.recipient] = n

			// Actors have the numbers behind those of the recipients.
			if n.recipient >= recipients || n.actor < recipients || n.actor >= 2*recipients {
				t.Fatalf("notification %+v: got another recipient or actor, want a recipient below %d, and an actor from there to %d",
					n, recipients, 2*recipients)
			}
		}
	}

	// Some recipient must have so many notifications that its list has its maximum length.
	hasFullList := false
	for _, list := range keptNotifications(runs) {
		hasFullList = hasFullList || len(list) == notificationsKept
	}
	if !hasFullList {
		t.Errorf("recipients with %d notifications: got none, want some", notificationsKept)
	}

	// 100 users cannot receive 30,000 different notifications. The error names the flag to change.
	const wantErr = "--readers"
	if _, err := notificationRuns(3, 10_000, 100); err == nil || !strings.Contains(err.Error(), wantErr) {
		t.Errorf("notificationRuns for 100 users: got error %v, want one with %q", err, wantErr)
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
				want := c.expectedGroups(user)
				if got := len(want); got <= feedPageSize || got > maxBadge {
					t.Errorf("groups of user %d: got %d, want more than the %d of a page and at most %d", user, got, feedPageSize, maxBadge)
				}
				if err := s.check(t.Context(), workload.UserID(user), want); err != nil {
					t.Error(err)
				}

				// The check must notice an answer that has too much.
				if err := s.check(t.Context(), workload.UserID(user), want[1:]); err == nil {
					t.Error("check of an answer with one group too many: got no error, want one")
				}
			}
		})
	}
}

func TestUsersSeePartOfWhatTheyReceived(t *testing.T) {
	for _, c := range notifiedClasses(1) {
		t.Run(c.title, func(t *testing.T) {
			hiddenCounts := make(map[string]int)
			for _, n := range c.notificationsOf(c.users[0]) {
				switch {
				case n.isVisible():
					continue
				case isMuted(n.actor):
					hiddenCounts["muted"]++
				case isBlocked(n.actor):
					hiddenCounts["blocked"]++
				case n.kind == notifications.Repinned && isDeletedRepin(n.repin):
					hiddenCounts["re-pin deleted"]++
				default:
					hiddenCounts["pin deleted"]++
				}
			}
			for _, reason := range []string{"muted", "blocked", "re-pin deleted", "pin deleted"} {
				if hiddenCounts[reason] == 0 {
					t.Errorf("notifications that are hidden because of %q: got none, want some", reason)
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
		t.Errorf("appendNotification: got %q, want %q", got, want)
	}
}
