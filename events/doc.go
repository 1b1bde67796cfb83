// Package events is the log of skein: what a fact is, how facts are appended, and how they are read back so that
// every reader sees the same.
//
//	clients ──▶ gateway ──Validate──▶ publisher                 NATS clients in any language
//	                                     │ EncodeEnvelope: all that waits        │
//	                                     ▼ while the last fsync is under way     │
//	       ┌──────────────────────────────────────────────────────────┐         │
//	       │ log: one JetStream stream, one subject, fsynced appends   │ ◀───────┘
//	       └──────────────────────────────────────────────────────────┘
//	                                     │ one unfiltered ordered read: sequence, timestamp, bytes
//	                                     ▼
//	                                  Decoder: checks, times, drops repeats
//	                                     │ *Envelope, shared and never changed
//	                                     ▼
//	                                    hub ──▶ graph, inbox, seen, counters, Watch, archive
//	                                              each commits its rows with Envelope.Cursor
//	                                                         │
//	       after a restart: NewDecoder(cursor) ◀──────────────┘
//
// The package has two halves. The pure half knows neither the network nor the clock: [Validate] and [FromProto],
// [EncodeEnvelope], and [Decoder], whose output is a function of the messages that it is fed. The other half moves
// bytes: it opens the stream, publishes, reads, and hands each decoded envelope to all who follow the log.
//
// # One reader's rules, for every fold alike
//
// A message of the log is an envelope: a skein.v1.EventBatch of 1 to [MaxEnvelopeEvents] events and at most
// [MaxEnvelopeBytes] bytes. Anybody may append one, so the decoder trusts nothing about it.
//
//   - An envelope that is no message, has a later version or exceeds a bound has no events and takes no time. It
//     leaves one [Reject] with Slot -1, and the cursor moves on.
//   - An event that [Validate] refuses leaves one [Reject]. It keeps its slot and so its microsecond, and it
//     registers no event id.
//   - A good event whose acting user, kind and event id occurred within the [Horizon] is counted in
//     [Envelope.Repeats] and dropped.
//   - The rest are [Envelope.Events].
//
// # Invariants
//
// I2, acknowledged means on disk: an append returns after the log has fsynced it, on a quorum of a cluster. Held by
// the publisher and by the settings of the stream.
//
// I5, order, not clocks: the time of slot i of an envelope is max(timestamp of the message in the stream, last time
// given + 1 µs) + i µs. The last time given is in the [Cursor], so times never repeat or run back, whatever the
// wall clock does and wherever a reader starts. Only a backfill brings a time of its own, cut to its log time.
// Held by [Decoder].
//
// I6, idempotent: an event is dropped if the same (acting user, kind, event id) occurs within the horizon of 15
// minutes of log time before it, itself dropped or not. The decoder keeps 64-bit hashes in memory and stores nothing:
// the cursor names an envelope (WarmSeq) from which a new decoder reads again before it goes on. Each cursor is a
// function of the log alone, and at the place where it was taken the new decoder must arrive at the same one, or
// the log was rewritten ([ErrRewritten]). Held by [Decoder].
//
// I11, bad input stops nobody: what [Validate] refuses at the gateway, the decoder refuses on reading, with the same
// words. Held by [Validate], of which the decoder's fast path is only a shortcut to yes.
package events
