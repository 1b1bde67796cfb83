package seen

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFalsePositiveRate checks that filters of one month take no larger share of unseen candidates
// for seen than allowed, however few or many plays they have.
func TestFalsePositiveRate(t *testing.T) {
	const bits = 12
	probes := 2_000_000
	for _, n := range []int{1, 2, 3, 5, 10, 33, 100, 1000, 10_000} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		positives, tried := 0, 0

		// Test many small sets together, because the rate is that of all users.
		for sets := max(1, 2000/n); sets > 0; sets-- {
			fingerprints := make([]uint64, n)
			for i := range fingerprints {
				fingerprints[i] = r.Uint64N(1 << fingerprintBits)
			}
			slices.Sort(fingerprints)
			p := &probe{}
			p.reset(0, probes/max(1, 2000/n))
			for i := range p.fingerprints {
				p.fingerprints[i] = r.Uint64N(1 << fingerprintBits)
			}
			if err := p.addBloom(appendBloom(nil, fingerprints, bits)); err != nil {
				t.Fatal(err)
			}
			p.findUnseen()
			tried += len(p.fingerprints)
			positives += len(p.fingerprints) - len(p.unseen)
		}

		rate := float64(positives) / float64(tried) * (1 << bits)
		t.Logf("%d plays: %.2f of what is allowed", n, rate)

		// The window has one open month, which leaves a third more to each of the others. So a rate
		// somewhat above 1 is allowed.
		if rate > 1.15 {
			t.Errorf("%d plays: got %.2f times as many false positives as one month may have, want at most 1.15", n, rate)
		}
	}
}
