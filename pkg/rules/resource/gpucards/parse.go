package gpucards

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Most is how many cards a node may have.
const Most = 256

// ParseSizes reads the memory of each card of a node, of which total is allocatable.
// The error says what would have been right.
func ParseSizes(value string, total int64) ([]int64, error) {
	var sizes []int64
	if err := json.Unmarshal([]byte(value), &sizes); err != nil || len(sizes) == 0 || len(sizes) > Most {
		return nil, fmt.Errorf("a JSON list of 1 to %d amounts of memory in MiB", Most)
	}
	left := total // a sum could overflow
	for _, size := range sizes {
		if size <= 0 {
			return nil, errors.New("a JSON list of amounts above 0")
		}
		left = less(left, size)
	}
	if left != 0 {
		return nil, fmt.Errorf("a list whose sum is the %d MiB that the node has allocatable", total)
	}
	return sizes, nil
}

// ParseIndex reads the card of a pod on a node with this many cards. The error says what would have
// been right.
func ParseIndex(value string, cards int) (int, error) {
	index, err := strconv.Atoi(value)
	if err != nil || index < 0 || index >= cards || strconv.Itoa(index) != value {
		return 0, fmt.Errorf("a card of its node, which are 0 to %d", cards-1)
	}
	return index, nil
}
