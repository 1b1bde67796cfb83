// Package feedwatch wakes the watchers of feeds (FeedService.WatchFeed) when the feed of their
// reader may have changed.
//
//	hub ──► follower ── has the inbox folded it? ──► events ──┬── of the reader ────────────────► wake
//	        one goroutine                                      └── of owners ── whom they follow ─► wake
//
// While there are watchers, one goroutine per process, the follower, reads the same decoded log
// that the projections fold. It waits until the inbox shows what it has read, and only then looks
// for the watchers that are concerned. A watcher is woken by events of its reader, by a block of
// its reader, and by every change of pins or boards of an owner that its reader follows. The
// watcher keeps 4 bytes for each of these owners, so events of other owners need no query. The
// deletion of a user wakes every watcher, because re-pins of that user's pins leave the feeds of
// readers who do not follow the user. A woken watcher counts its feed again. [Stream] is the loop
// that counts and sends.
//
// Guarantees:
//
//   - After the last event that changes the number of a watcher, the watcher is woken, and a view that it opens then shows that event. So the
//     last number that it sends is right. It may skip numbers in between, and it may be woken without need.
//   - Watchers never delay a fold.
//   - If the log or the inbox can no longer be followed, every watcher ends with the error ([Watcher.Failed]).
//
// They hold for these reasons. A watcher enters before it opens its first view, and the follower
// processes no event before the inbox shows it. So the first view contains every event that was
// processed before the watcher entered. The set of followed users grows only by events that name
// both users, and the follower adds the new owner before it processes later events. Owners whom the
// reader no longer follows stay in the set, and only cause needless wake-ups. Seen items leave the
// window in which they count when a month of the log ends, so a new month wakes all watchers that
// hide seen items. A mute may end by itself: a watcher says at which log time the first one of its
// reader does, and is woken then.
//
// Notifications (NotificationService.WatchNotifications) have Watchers and a follower of their own,
// which wait until the notifications, the inbox and the graph have folded an event. A watcher of
// notifications is woken by events that name its user, and by every change of pins of users whose
// re-pins it has counted.
package feedwatch
