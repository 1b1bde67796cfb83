package eventlog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// Keys of the stream's metadata.
const (
	metaLogID = "skein-log-id" // 32 hexadecimal digits
	metaEpoch = "skein-epoch"  // decimal, from 1
	// metaPredecessors lists the epochs before this one as JSON: [{"epoch":1,"last":123}]. The stream of this
	// epoch begins after the last of them.
	metaPredecessors = "skein-predecessors"
	// metaLastTime is the last time given before this epoch, in decimal microseconds: with predecessors only.
	metaLastTime = "skein-last-time"
	// metaErased is the last epoch that ended with an erasure, and the sequence of the deletion, as EPOCH:SEQUENCE.
	metaErased = "skein-erased"
)

// Predecessor is an epoch of the log before the present one.
type Predecessor struct {
	Epoch uint32 `json:"epoch"`
	// Last is the highest sequence of it that the log still has, in its archive. Later envelopes of that epoch are
	// lost or were replaced.
	Last uint64 `json:"last"`
}

// logMeta is the parsed metadata of the stream. All processes share it: it is where they learn of epochs and accepted holes.
type logMeta struct {
	id    events.LogID
	epoch uint32
	// first is the sequence at which the epoch begins. lastTime is the last log time given before it, so that times continue to
	// rise (I5).
	first    uint64
	lastTime events.Micros
	// predecessors rise by epoch, and do not fall by sequence.
	predecessors []Predecessor
	// erased is the last erasure.
	erased Erased
	// holes are those that an operator has accepted: disjoint, rising.
	holes []SeqRange
}

// Erased is the last erasure from a log. The zero value means that there was none.
type Erased struct {
	// Epoch ended with it: from that epoch and those before it the log has only what was scrubbed. Seq is the sequence of the deletion, up
	// to which it was scrubbed.
	Epoch uint32
	Seq   uint64
}

// Erased returns the last erasure. A log that was restored does not know which epochs before the one that it lost ended with an
// erasure, so it returns the last of these, whole.
func (l *Log) Erased() Erased { return l.meta().erased }

// String returns EPOCH:SEQUENCE, as the metadata of the stream has it.
func (e Erased) String() string { return fmt.Sprintf("%d:%d", e.Epoch, e.Seq) }

func parseErased(text string) (e Erased, err error) {
	if text == "" {
		return e, nil
	}
	if n, err := fmt.Sscanf(text, "%d:%d", &e.Epoch, &e.Seq); err != nil || n != 2 || e.String() != text {
		return e, fmt.Errorf("metadata %s is %q, must be an epoch and a sequence", metaErased, text)
	}
	return e, nil
}

// parseMeta reads the metadata of a stream.
func parseMeta(m map[string]string) (logMeta, error) {
	meta := logMeta{first: 1}
	id, err := hex.DecodeString(m[metaLogID])
	if err != nil || len(id) != len(meta.id) {
		return meta, fmt.Errorf("metadata %s is %q, must be 32 hexadecimal digits", metaLogID, m[metaLogID])
	}
	copy(meta.id[:], id)
	epoch, err := strconv.ParseUint(m[metaEpoch], 10, 32)
	if err != nil || epoch == 0 {
		return meta, fmt.Errorf("metadata %s is %q, must be a number from 1", metaEpoch, m[metaEpoch])
	}
	meta.epoch = uint32(epoch)
	if meta.holes, err = parseHoles(m[metaHoles]); err != nil {
		return meta, err
	}
	if meta.erased, err = parseErased(m[metaErased]); err != nil {
		return meta, err
	}
	list := m[metaPredecessors]
	if list == "" {
		return meta, nil
	}
	if err := json.Unmarshal([]byte(list), &meta.predecessors); err != nil {
		return meta, fmt.Errorf("metadata %s is malformed: %w", metaPredecessors, err)
	}
	if err := checkPredecessors(meta.epoch, meta.predecessors); err != nil {
		return meta, fmt.Errorf("metadata %s is %s: %w", metaPredecessors, list, err)
	}
	last, err := strconv.ParseInt(m[metaLastTime], 10, 64)
	if err != nil || last < 0 {
		return meta, fmt.Errorf("metadata %s is %q, must be a time in microseconds", metaLastTime, m[metaLastTime])
	}
	meta.first = meta.predecessors[len(meta.predecessors)-1].Last + 1
	meta.lastTime = events.Micros(last)
	return meta, nil
}

// checkPredecessors refuses a list that no log can have.
func checkPredecessors(epoch uint32, list []Predecessor) error {
	if len(list) == 0 {
		return errors.New("an epoch that replaces others names them")
	}
	var before Predecessor
	for _, p := range list {
		if p.Epoch <= before.Epoch || p.Epoch >= epoch || p.Last < before.Last {
			return fmt.Errorf("epochs must rise from 1 to below %d, and sequences not fall", epoch)
		}
		before = p
	}
	return nil
}

// isContinuedFrom reports whether the present epoch has the same envelope at a sequence as the given epoch had.
func (m logMeta) isContinuedFrom(epoch uint32, seq uint64) bool {
	if epoch == m.epoch {
		return true
	}
	for _, p := range m.predecessors {
		if p.Epoch == epoch {
			return seq <= p.Last
		}
	}
	return false
}

// otherEpoch says why a cursor or position is not adopted, and what to do with a cursor.
func (m logMeta) otherEpoch(what string, epoch uint32, seq uint64) error {
	for _, p := range m.predecessors {
		if p.Epoch == epoch {
			return fmt.Errorf("%w: the %s is at sequence %d of epoch %d, of which the log has only what is up to %d: "+
				"epoch %d went on from there with other events", events.ErrOtherEpoch, what, seq, epoch, p.Last, m.epoch)
		}
	}
	return fmt.Errorf("%w: the %s is of epoch %d, the log is in %d, which does not come from it", events.ErrOtherEpoch,
		what, epoch, m.epoch)
}

// Adopt returns the cursor as the present epoch of the log writes it. A cursor of a predecessor at or below the last
// sequence of it that the log has becomes one of the archive: without a checksum and a warm-up start. Others of
// another epoch are refused: [events.ErrOtherEpoch]; those of another log too: [events.ErrOtherLog].
func (l *Log) Adopt(c events.Cursor) (events.Cursor, error) {
	if c.Log != l.meta().id {
		return c, fmt.Errorf("%w: the cursor is of log %x, this is %x: connect to the right server or data directory, "+
			"or start anew with an empty store", events.ErrOtherLog, c.Log, l.meta().id)
	}
	if !l.meta().isContinuedFrom(c.Epoch, c.Seq) {
		return c, fmt.Errorf("%w: rebuild the store", l.meta().otherEpoch("cursor", c.Epoch, c.Seq))
	}
	if c.Epoch != l.meta().epoch {
		c = events.Cursor{Log: c.Log, Epoch: l.meta().epoch, Seq: c.Seq, LastTime: c.LastTime}
	}
	return c, nil
}

// Predecessors returns the epochs that the present one continues from, oldest first.
func (l *Log) Predecessors() []Predecessor {
	return append([]Predecessor(nil), l.meta().predecessors...)
}

// EpochStart returns the cursor after which the present epoch begins: that of [Log.Start] in a log that was never
// restored, moved or scrubbed.
func (l *Log) EpochStart() events.Cursor { return l.meta().epochStart() }

func (m *logMeta) epochStart() events.Cursor {
	return events.Cursor{Log: m.id, Epoch: m.epoch, Seq: m.first - 1, LastTime: m.lastTime}
}

// Restored describes a log that continues in a new epoch.
type Restored struct {
	// ID is that of the log.
	ID events.LogID
	// Epoch is higher than any that the log had.
	Epoch uint32
	// Predecessors are the epochs before it whose cursors, positions and page tokens stay good, oldest first. Last of the
	// last one is Head.Seq.
	Predecessors []Predecessor
	// Head is the cursor after the last envelope of the archive. The next envelope has the sequence after it, and later times.
	Head events.Cursor
	// Erased is the last erasure. The zero value means that it is not known.
	Erased Erased
}

// erased returns the last erasure, or what may have been one: every epoch that was followed by another but the last, which was lost.
func (r Restored) erased() Erased {
	if n := len(r.Predecessors); r.Erased == (Erased{}) && n > 1 {
		return Erased{r.Predecessors[n-2].Epoch, r.Predecessors[n-2].Last}
	}
	return r.Erased
}

func (r Restored) valid() error {
	if err := checkPredecessors(r.Epoch, r.Predecessors); err != nil {
		return fmt.Errorf("eventlog: restore epoch %d: %w", r.Epoch, err)
	}
	last := r.Predecessors[len(r.Predecessors)-1]
	switch {
	case r.ID == events.LogID{}, r.Head.Log != r.ID:
		return fmt.Errorf("eventlog: restore log %x: the head is of log %x", r.ID, r.Head.Log)
	case last.Last != r.Head.Seq:
		return fmt.Errorf("eventlog: restore epoch %d: its predecessor ends at sequence %d, the head is %d", r.Epoch,
			last.Last, r.Head.Seq)
	case r.Head.LastTime < 0:
		return fmt.Errorf("eventlog: restore epoch %d: the last time of the head is negative", r.Epoch)
	}
	return nil
}

// metadata is that of the stream of the new epoch.
func (r Restored) metadata() (map[string]string, error) {
	list, err := json.Marshal(r.Predecessors)
	if err != nil {
		return nil, fmt.Errorf("eventlog: %w", err)
	}
	m := map[string]string{
		metaLogID:        hex.EncodeToString(r.ID[:]),
		metaEpoch:        strconv.FormatUint(uint64(r.Epoch), 10),
		metaPredecessors: string(list),
		metaLastTime:     strconv.FormatInt(int64(r.Head.LastTime), 10),
	}
	if erased := r.erased(); erased != (Erased{}) {
		m[metaErased] = erased.String()
	}
	return m, nil
}

// Restore makes the stream of a log that continues in a new epoch after its archive: it begins at the sequence after the
// head, and holds nothing yet. When there is a stream it is left alone: [events.ErrLogExists].
func Restore(ctx context.Context, cfg Config, r Restored) (err error) {
	l := &Log{cfg: cfg, logger: cfg.Logger, closers: make(map[closer]struct{})}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(r.valid(), cfg.valid()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.release(context.WithoutCancel(ctx))) }()
	if cfg.URL == "" {
		if l.server, err = startServer(ctx, cfg, l.logger); err != nil {
			return err
		}
	}
	if l.link, err = connect(ctx, cfg, l.server, l.logger); err != nil {
		return err
	}
	l.restored = &r
	return l.findStream(ctx, true)
}

// refuseExisting fails with [events.ErrLogExists] if the server already has the stream. The check is needed because NATS does not
// treat creating an identical stream a second time as an error.
func (l *Log) refuseExisting(ctx context.Context) error {
	stream, err := l.link.js.Stream(ctx, StreamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return streamError(err)
	}
	meta, err := parseMeta(stream.CachedInfo().Config.Metadata)
	if err != nil {
		return fmt.Errorf("%w: stream %s: %w", events.ErrLogExists, StreamName, err)
	}
	if meta.id == l.restored.ID && meta.epoch == l.restored.Epoch && meta.first == l.restored.Head.Seq+1 && l.creating {
		return nil // ours: the answer to an earlier attempt was lost
	}
	return fmt.Errorf("%w: stream %s holds log %x in epoch %d: move it away, or restore elsewhere", events.ErrLogExists,
		StreamName, meta.id, meta.epoch)
}
