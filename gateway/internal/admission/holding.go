package admission

import "github.com/skein-feed/skein/gateway/internal/apierror"

const (
	// FreeBytes of each body and of each answer are not counted: connections and calls bound these.
	FreeBytes = 4 << 10
	// HeldPerByte is how often a byte of a body is held: as it came, and decoded.
	HeldPerByte = 2
)

// Holding is what one call has taken of the budget of bytes.
type Holding struct {
	from   *Budget
	Party  string
	free   int64
	amount int64
}

// NewHolding is that of a call of a party, which has taken nothing.
func NewHolding(from *Budget, party string) Holding {
	return Holding{from: from, Party: party, free: FreeBytes}
}

// Of has the holding take from a budget for a party, without anything free.
func (h *Holding) Of(from *Budget, party string) { h.from, h.Party = from, party }

// Hold takes bytes, or refuses them.
func (h *Holding) Hold(n int64) *apierror.Failure {
	free := min(n, h.free)
	h.free -= free
	if n -= free; n == 0 {
		return nil
	}
	if f := h.from.Take(h.Party, n); f != nil {
		return f
	}
	h.amount += n
	return nil
}

// Release gives everything back.
func (h *Holding) Release() {
	if h.amount > 0 {
		h.from.Give(h.Party, h.amount)
		h.amount = 0
	}
}
