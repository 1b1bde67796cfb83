// Package events defines the facts that skein records: the kinds of events, their fields and
// limits, their encoding, the time that the log gives them, and when an event repeats an earlier
// one. The package is the pure half of the log. It uses neither network nor clock nor disk, so
// every reader of the same bytes gets the same events. Package eventlog moves the bytes; packages
// archive and bucket store them.
//
//	a call ──▶ CheckCall ──▶ eventlog.Publisher ──▶ the log: sequence, timestamp, bytes
//	           reports what it refuses                       │
//	                                                         ▼
//	           *Envelope, shared, immutable  ◀── Decoder: checks again, assigns times, drops repeats
//
// [CheckCall] and [FromProto] check a message and turn it into an [Event]. [EncodeCall] and
// [JoinCalls] encode. What a [Decoder] returns depends only on the messages that it was given. The
// row of a kind in kindTable holds what all of them need to know about it.
//
// # How an envelope is read
//
// A message of the log is an envelope: a skein.v1.EventBatch of 1 to [MaxEnvelopeEvents] events and
// at most [MaxEnvelopeBytes] bytes. Other programs may append envelopes too, so the decoder trusts
// nothing in them.
//
//   - An envelope that cannot be decoded, has a later version or exceeds a limit yields no events
//     and takes no log time. It yields one [Reject] with Slot -1, and the cursor moves past it.
//   - An event that [Validate] refuses yields one [Reject]. It keeps its slot, and so its
//     microsecond of log time, but its event id is not remembered.
//   - A valid event whose acting user, kind and event id occurred within the [Horizon] before it is
//     dropped and counted in [Envelope.Repeats].
//   - All other events are in [Envelope.Events].
//
// # Invariants
//
// I5, order, not clocks: the time of slot i of an envelope is max(timestamp of the message in the
// stream, last assigned time + 1 µs) + i µs. The last assigned time is part of the [Cursor], so
// times never repeat or go back, whatever the wall clock does and wherever a reader starts. Only a
// backfill carries its own time, which is never later than its log time. [Decoder] keeps this
// invariant.
//
// I6, idempotent: an event is dropped if the same (acting user, kind, event id) occurred within 15
// minutes of log time before it, even if that earlier event was itself dropped. If the content of
// the event differs from all of those earlier events, it is kept as a reject (EVENT_ID_REUSED). The
// decoder keeps two 64-bit hashes of each event in memory, one of the key and one of key and
// content, and stores neither. Instead, the cursor names an envelope (WarmSeq) from which a new
// decoder reads again before it continues; this is the warm-up. Every cursor of the stream depends
// on the log alone. When the warm-up reaches the position of the cursor, it must have produced the
// same cursor; otherwise the log was rewritten ([ErrRewritten]). [Decoder] keeps this invariant.
//
// I11, bad input does not stop a reader: what [Validate] refuses at the gateway, the decoder
// refuses on reading, with the same message. [Validate] keeps this invariant; the fast path of the
// decoder only accepts early what [Validate] would accept.
package events
