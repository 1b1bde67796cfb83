// Package notifications is the projection that keeps what others did to a user's pins: who reacted
// to them, and who re-pinned them.
//
// A fact is that one user, the actor, reacted to a pin of another user, the recipient, or re-pinned
// it. It begins with a reacted or with a pin_created that names the recipient's pin, and ends with
// an unreacted or a pin_deleted that names the same pin. Its notification stands exactly while the
// fact holds. An ending that names no pin leaves the notification, and so does the end of the
// recipient's pin: these are looked at when a page is read (groups.go), as are mutes and blocks.
// Follows are not stored here: a page merges them from the graph.
//
//	reacted, unreacted ────────────┐                 ┌──► fact rows: what is known about each fact of an actor
//	pin_created with repin_of ─────┼──► rows.go ─────┼──► list rows: notifications of a recipient, newest first
//	pin_deleted with repin_of ─────┘                 └──► ended rows: the facts of a recipient that are in no list row
//	notifications_seen, _read ────────► markers.go ─────► marker rows
//
// Every row is at the home of the recipient, the one partition that has the recipient's rows (I13).
// An actor who is deleted may have facts at any home, so each partition has its fact rows below the
// actor's id. The facts of a recipient who is deleted are found by the list rows and the ended
// rows. A fact that holds therefore takes two rows.
//
// A recipient keeps the newest [Settings.Keep] notifications of each kind, and up to a quarter more
// until the next time that the oldest are dropped. Which ones are dropped depends on the order in
// which events arrive, here and nowhere else: when history arrives later, what was dropped is not
// known any more.
//
// # Files
//
//	notifications.go  settings, kinds of events, dispatch; route.go: to which homes an event goes
//	keys.go           all rows in one table, and their keys
//	rows.go           from facts to notifications; markers.go: what was seen and read; erase.go: the end of a user
//	query.go          rows and markers of one user; groups.go: groups of notifications, and pages of them
//	inspect.go        descriptions of rows for people
package notifications
