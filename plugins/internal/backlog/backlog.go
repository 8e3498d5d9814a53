// Package backlog is what a cache has not seen yet of what was stored at a moment.
//
// Once it is settled, the cache has every object of that moment as it was then or as it
// became later, and none that was gone by then. What has happened since counts neither way,
// so that even a cache that is always a little behind can catch up with the moment.
package backlog

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Backlog is the revisions that a cache lacks, by the key of the object; an empty one for an object
// that it has and should not have any more.
type Backlog struct {
	want map[string]string
}

// Seen looks an object up, and returns its revision; false if it is not there.
type Seen func(key string) (revision string, ok bool)

// New compares what was stored when the revision was at with what a cache has. Later revisions that
// the cache has are no backlog; if at is empty, none is later. It fails if a revision is not valid.
func New(stored map[string]string, at string, cached map[string]string) (*Backlog, error) {
	b, known := &Backlog{want: map[string]string{}}, 0
	for key, revision := range stored {
		has, ok := cached[key]
		if ok {
			known++
			reached, err := Reached(has, revision)
			if err != nil {
				return nil, fmt.Errorf("comparing revisions of %s: %w", key, err)
			}
			ok = reached
		}
		if !ok {
			b.want[key] = revision
		}
	}
	if known == len(cached) {
		return b, nil // the cache has no others
	}
	for key, revision := range cached {
		if _, ok := stored[key]; ok {
			continue
		}
		later := false
		if at != "" {
			var err error
			if later, err = Reached(revision, at); err != nil {
				return nil, fmt.Errorf("comparing revisions of %s: %w", key, err)
			}
		}
		if !later {
			b.want[key] = ""
		}
	}
	return b, nil
}

// Settle removes what the cache has seen since, and returns how much is left. gone reports whether
// an object that the cache does not have has been deleted since.
func (b *Backlog) Settle(cached Seen, gone func(key string) bool) (int, error) {
	for key, revision := range b.want {
		has, ok := cached(key)
		switch {
		case !ok && (revision == "" || gone(key)):
			delete(b.want, key)
		case ok && revision != "":
			reached, err := Reached(has, revision)
			if err != nil {
				return 0, fmt.Errorf("comparing revisions of %s: %w", key, err)
			}
			if reached {
				delete(b.want, key)
			}
		}
	}
	return len(b.want), nil
}

// Reached reports whether a revision is that one or a later one.
func Reached(revision, that string) (bool, error) {
	order, err := resourceversion.CompareResourceVersion(revision, that)
	return order >= 0, err
}
