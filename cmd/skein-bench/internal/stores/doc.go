// Package stores has the rows that are measured in process, of one store on disk each, or of the
// few that one answer needs.
//
//	constant.go     the cost of a user with many followers against one with few
//	inprocess.go    checks against roaring bitmaps
//	disk.go         bytes of a follow
//	feed.go         the home feed: fan-out; feedpages.go: pages of it; feedworld.go: which boards post and which readers
//	                follow; feedredis.go: the same in Redis
//	seen.go         what users have seen: plays; seenfold.go: plays that are folded; seenbytes.go: their bytes at rest;
//	                seenfilter.go: candidates; seenredis.go: the same in Redis
//	counters.go     lists by heat, counts
//	notifications.go       notifications: the fold, the badge, pages of groups; notificationsworld.go: who is notified of what;
//	                       notificationsredis.go: the same in Redis
//	pipelines.go    writes to Redis, in pipelines over two connections
package stores
