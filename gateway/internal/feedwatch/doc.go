// Package feedwatch wakes those who watch feeds (FeedService.WatchFeed) when the feed of their reader may have changed.
//
//	hub ──► follower ── has the inbox folded it? ──► events ──┬── of the reader ────────────────► wake
//	        one goroutine                                      └── of owners ── whom they follow ─► wake
//
// One goroutine a process, while there are watchers, follows the decoded log that the projections fold. It waits until the inbox shows
// what it has read, and only then looks for the watchers that are concerned. A watcher is woken by what its reader does, by a block of
// its reader, and by every change of pins or boards of an owner that its reader follows. It keeps 4 bytes for each of these owners, so
// events of others cost no query. A watcher that is woken counts its feed again.
//
// What is guaranteed:
//
//   - After the last event that changes the number of a watcher, the watcher is woken, and a view that it opens then shows that event.
//     So it ends with the final number. It may skip numbers in between, and it may be woken for nothing.
//   - Watchers never delay a fold.
//   - If the log or the inbox cannot be followed any more, every watcher ends with the error ([Watcher.Failed]).
//
// The reasons: a watcher enters before it opens its first view, and no event is looked at before the inbox shows it. So the first view
// has every event that the watcher was not asked about. The set of followed users grows only by events that name both users, and the
// follower adds the other user to the owners before it looks at later events. Owners whom the reader no longer follows stay: they only
// cause needless wake-ups. Played items leave the window of seen items when a month of the log ends, so a new month wakes all watchers
// that hide seen items.
package feedwatch
