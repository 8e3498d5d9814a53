package startup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// backlog is the revisions that a cache lacks, by the key of the object; empty for an object that was deleted and is
// still in the cache.
type backlog map[string]string

// seen looks an object up, and returns its revision; false if it is not there.
type seen func(key string) (revision string, ok bool)

// newBacklog compares what was stored when the revision was at with what a cache has. Later revisions that
// the cache has are no backlog; if at is empty, none is later. It fails if a revision is not valid.
func newBacklog(stored map[string]string, at string, cached map[string]string) (backlog, error) {
	b, known := backlog{}, 0
	for key, revision := range stored {
		has, ok := cached[key]
		if ok {
			known++
			reached, err := hasReached(has, revision)
			if err != nil {
				return nil, fmt.Errorf("comparing revisions of %s: %w", key, err)
			}
			ok = reached
		}
		if !ok {
			b[key] = revision
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
			if later, err = hasReached(revision, at); err != nil {
				return nil, fmt.Errorf("comparing revisions of %s: %w", key, err)
			}
		}
		if !later {
			b[key] = ""
		}
	}
	return b, nil
}

// settle removes what the cache has seen since, and returns how much is left. gone reports whether
// an object that the cache does not have has been deleted since.
func (b backlog) settle(cached seen, gone func(key string) bool) (int, error) {
	for key, revision := range b {
		has, ok := cached(key)
		switch {
		case !ok && (revision == "" || gone(key)):
			delete(b, key)
		case ok && revision != "":
			reached, err := hasReached(has, revision)
			if err != nil {
				return 0, fmt.Errorf("comparing revisions of %s: %w", key, err)
			}
			if reached {
				delete(b, key)
			}
		}
	}
	return len(b), nil
}

// hasReached reports whether a revision is that one or a later one.
func hasReached(revision, that string) (bool, error) {
	order, err := resourceversion.CompareResourceVersion(revision, that)
	return order >= 0, err
}
