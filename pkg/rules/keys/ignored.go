package keys

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// EventIgnored is the reason of events on objects with such keys.
const EventIgnored = "KeyIgnored"

// Ignored is a key that has no effect where it stands.
type Ignored struct {
	Key, Value string
	// Why says so to users, with what to do.
	Why string
}

// FindIgnored returns the keys of an object that have no effect there, in order: they are misspelled, or belong
// elsewhere. Of Koordinator's prefix only those count that are much like one that is read here, or one under the other
// prefix.
func FindIgnored(on Object, annotations, labels map[string]string) []Ignored {
	if !hasKeys(annotations) && !hasKeys(labels) {
		return nil
	}
	return append(ignoredOf(on, annotations, false), ignoredOf(on, labels, true)...)
}

// hasKeys reports whether there is a key under any of the prefixes. It is called for every pod.
func hasKeys(entries map[string]string) bool {
	for key := range entries {
		if underPrefix(key) {
			return true
		}
	}
	return false
}

func underPrefix(key string) bool {
	return strings.HasPrefix(key, Prefix) || strings.HasPrefix(key, KoordinatorPrefix)
}

// Under returns the entries whose key is under one of the prefixes; nil for none.
func Under(entries map[string]string) (under map[string]string) {
	for key, value := range entries {
		if underPrefix(key) {
			if under == nil {
				under = map[string]string{}
			}
			under[key] = value
		}
	}
	return under
}

func ignoredOf(on Object, entries map[string]string, labels bool) (all []Ignored) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if !underPrefix(name) {
			continue
		}
		if why := whyIgnored(on, name, labels); why != "" {
			all = append(all, Ignored{Key: name, Value: entries[name], Why: why})
		}
	}
	return all
}

// whyIgnored returns why a label or annotation has no effect on an object; empty if it has one.
func whyIgnored(on Object, name string, label bool) string {
	key, known := Find(name)
	switch {
	case !known:
		return unknown(name)
	case !label && slices.Contains(key.AnnotationOf, on), label && slices.Contains(key.LabelOf, on):
		return ""
	case on == Owner && (slices.Contains(key.AnnotationOf, Pod) || slices.Contains(key.LabelOf, Pod)):
		return fmt.Sprintf("has no effect here: it is %s; put it on the pod template", key.Where())
	}
	form := "an annotation"
	if label {
		form = "a label"
	}
	return fmt.Sprintf("has no effect as %s of %s: it is %s", form, on, key.Where())
}

func unknown(name string) string {
	ours := strings.HasPrefix(name, Prefix)
	near, distance := nearestKey(name)
	other := underOtherPrefix(name)
	_, isKey := Find(other)
	switch {
	case isKey:
		return fmt.Sprintf("is not a key that is read here: did you mean %s?", other)
	case distance <= maxTypos, strings.HasSuffix(name, "-"+path.Base(near)):
		return fmt.Sprintf("is not a key that is read here: did you mean %s?", near)
	case !ours:
		return "" // it may be Koordinator's own
	}
	return fmt.Sprintf("is not a key that is read here; the nearest is %s", near)
}

// underOtherPrefix returns a name with the other one of the prefixes.
func underOtherPrefix(name string) string {
	if last, ok := strings.CutPrefix(name, Prefix); ok {
		return KoordinatorPrefix + last
	}
	return Prefix + strings.TrimPrefix(name, KoordinatorPrefix)
}

// maxTypos is how many letters of a key may be wrong, too many or missing for it to be meant for another one.
const maxTypos = 3

// nearestKey returns the key of the table that differs least from a name, and in how many letters.
func nearestKey(name string) (near string, distance int) {
	distance = len(name) + 1
	for _, key := range Table {
		if strings.HasPrefix(key.Name, Prefix) != strings.HasPrefix(name, Prefix) {
			continue
		}
		if d := Distance(name, key.Name); d < distance {
			near, distance = key.Name, d
		}
	}
	return near, distance
}

// Nearest returns the one of some names that differs least from a name; empty where none is near.
func Nearest(name string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	nearest := slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(Distance(name, a), Distance(name, b)), cmp.Compare(a, b))
	})
	isPart := strings.Contains(nearest, name) || strings.Contains(name, nearest)
	if Distance(name, nearest) > max(1, len(name)/3) && !isPart {
		return ""
	}
	return nearest
}

// Distance returns how many letters have to be changed, added or removed to make one text of another (Levenshtein);
// capital letters are the same as small ones.
func Distance(a, b string) int {
	x, y := []rune(strings.ToLower(a)), []rune(strings.ToLower(b))
	row := make([]int, len(y)+1) // from the first i letters of x to the first j of y
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			change := diagonal
			if x[i] != y[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
