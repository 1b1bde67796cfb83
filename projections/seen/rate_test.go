package seen

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFalsePositiveRate: filters of one month take no more unseen candidates for seen than they
// may, however few or many plays they hold.
func TestFalsePositiveRate(t *testing.T) {
	const bits = 12
	probes := 2_000_000
	for _, n := range []int{1, 2, 3, 5, 10, 33, 100, 1000, 10_000} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		positives, tried := 0, 0
		// Many small sets: the rate is that of all users together.
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
		// The window has one open month, which leaves a third more to each of the others.
		if rate > 1.15 {
			t.Errorf("%d plays: %.2f times as many false positives as are allowed", n, rate)
		}
	}
}
