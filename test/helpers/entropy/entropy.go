// Package entropy turns the bytes of a fuzzer into random numbers.
package entropy

import (
	"encoding/binary"
	"math/rand/v2"
)

// New returns numbers drawn from the fuzzer's bytes, so that a small change of them is a small change of what is made
// of the numbers; when they run out it goes on at random, by a seed.
func New(bytes []byte, seed uint64) *rand.Rand {
	return rand.New(&source{bytes, rand.NewPCG(1, seed)})
}

type source struct {
	bytes []byte
	rest  rand.Source
}

func (s *source) Uint64() uint64 {
	if len(s.bytes) < 2 {
		return s.rest.Uint64()
	}
	n := binary.LittleEndian.Uint16(s.bytes)
	s.bytes = s.bytes[2:]
	return uint64(n)<<48 | 1<<47
}
