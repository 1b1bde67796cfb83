package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	"github.com/skein-feed/skein/events"
)

// Member describes a node. The node publishes it in its key, apart from Draining and Seen.
type Member struct {
	// Name is unique in the cluster: 1 to 64 letters, digits, - and _.
	Name string `json:"name"`
	// Addr is the host:port at which other nodes reach it.
	Addr string `json:"addr"`
	// Zone is the failure domain of the node. Replicas of a partition are in different zones if there are enough zones. All nodes with
	// an empty Zone are in one zone.
	Zone string `json:"zone,omitempty"`
	// Weight is the node's share of the partitions relative to other nodes; 0 means 1.
	Weight int `json:"weight"`
	// Serves has the partitions for which the node answers queries now, in all projections.
	Serves events.Partitions `json:"serves"`
	// State is the state of the node, and Change the state of the change of its partitions. Both are empty if an older version of skein
	// wrote the key.
	State  string `json:"state,omitempty"`
	Change string `json:"change,omitempty"`
	// Position is the position in the log of the node's slowest projection, as text.
	Position string `json:"position,omitempty"`
	// Draining means that an operator has stopped the assignment of partitions to this node. See [Cluster.Drain].
	Draining bool `json:"draining,omitempty"`
	// LastSeen is the time, by the clock of this process, when it received the last renewal.
	LastSeen time.Time `json:"-"`
}

// Table says which nodes should hold each partition.
type Table struct {
	// Revision increases by one with each table; 0 means that no table has been written yet.
	Revision uint64
	// Replicas is how many nodes each partition should have.
	Replicas int
	// Nodes has, per partition, the names of at most Replicas nodes, the highest score of Place first.
	Nodes [events.NumPartitions][]string
}

// ErrVersion is the error of a value that another version of skein wrote, which this one cannot read.
var ErrVersion = errors.New("placement: unknown version")

// version is the format version of the values of all keys. A program reads no other version.
const version = 1

// The keys of the bucket.
const (
	nodePrefix  = "node."
	drainPrefix = "drain."
	leaseKey    = "controller"
	tableKey    = "table"
)

// memberValue is the value of the key of a node.
type memberValue struct {
	V        int    `json:"v"`
	Instance string `json:"instance"` // random id of one run of the node
	Member
}

// drainValue is the value of a key that drains a node.
type drainValue struct {
	V int `json:"v"`
}

// leaseValue is the value of the key of the controller. The counter makes each renewal another value.
type leaseValue struct {
	V       int    `json:"v"`
	Holder  string `json:"holder"` // an instance
	Name    string `json:"name"`   // of its node, for a person who reads it
	Counter uint64 `json:"counter"`
}

// tableValue is the value of the table's key.
type tableValue struct {
	V        int        `json:"v"`
	Revision uint64     `json:"revision"`
	Replicas int        `json:"replicas"`
	Nodes    [][]string `json:"nodes"` // one for each partition
}

func encodeTable(t *Table) ([]byte, error) {
	return json.Marshal(tableValue{V: version, Revision: t.Revision, Replicas: t.Replicas, Nodes: t.Nodes[:]})
}

// decode reads the value of a key, which must have the version that this program knows.
func decode[T any](key string, data []byte) (value T, err error) {
	var head struct {
		V int `json:"v"`
	}
	if err = json.Unmarshal(data, &head); err != nil {
		return value, fmt.Errorf("placement: the value of %s is malformed: %w", key, err)
	}
	if head.V != version {
		return value, fmt.Errorf("%w: the value of %s has version %d, this program reads version %d", ErrVersion, key, head.V, version)
	}
	if err = json.Unmarshal(data, &value); err != nil {
		return value, fmt.Errorf("placement: the value of %s is malformed: %w", key, err)
	}
	return value, nil
}

func decodeMember(key string, data []byte) (memberValue, error) {
	v, err := decode[memberValue](key, data)
	if err != nil {
		return v, err
	}
	if err := v.check(); err != nil {
		return v, fmt.Errorf("placement: the value of %s: %w", key, err)
	}
	if nodePrefix+v.Name != key {
		return v, fmt.Errorf("placement: the value of %s is that of a node with another name, %s", key, v.Name)
	}
	v.Draining = false // the drain key decides this, not the node
	return v, nil
}

func decodeTable(data []byte) (t Table, err error) {
	v, err := decode[tableValue](tableKey, data)
	if err != nil {
		return t, err
	}
	if len(v.Nodes) != len(t.Nodes) {
		return t, fmt.Errorf("placement: the table has %d partitions, must have %d", len(v.Nodes), len(t.Nodes))
	}
	t.Revision, t.Replicas = v.Revision, v.Replicas
	copy(t.Nodes[:], v.Nodes)
	return t, nil
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("placement: the name of a node is 1 to 64 letters, digits, - and _, not %q", name)
	}
	return nil
}

// check returns an error that describes the first invalid field.
func (m *Member) check() error {
	if err := checkName(m.Name); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(m.Addr); err != nil {
		return fmt.Errorf("placement: the address of a node is host:port: %w", err)
	}
	if m.Weight < 0 {
		return fmt.Errorf("placement: the weight of a node must not be negative: %d", m.Weight)
	}
	return nil
}
