package gangspec

import (
	"maps"
)

// Count is a number of pods, and how many of them have each role.
type Count struct {
	N     int
	Roles map[string]int
}

// Add counts so many pods of a role, or of none.
func (c *Count) Add(n int, role string) {
	c.N += n
	if role != "" {
		c.addRole(n, role)
	}
}

func (c *Count) addRole(n int, role string) {
	if c.Roles == nil {
		c.Roles = map[string]int{}
	}
	if c.Roles[role] += n; c.Roles[role] == 0 {
		delete(c.Roles, role)
	}
}

// AddAll adds another count, or with -1 subtracts it.
func (c *Count) AddAll(other Count, by int) {
	c.N += by * other.N
	for role, n := range other.Roles {
		c.addRole(by*n, role)
	}
}

// Plus returns the sum with others.
func (c Count) Plus(others ...Count) Count {
	c.Roles = maps.Clone(c.Roles)
	for _, other := range others {
		c.AddAll(other, 1)
	}
	return c
}

// Minus returns c without other, which is a part of it.
func (c Count) Minus(other Count) Count {
	c.Roles = maps.Clone(c.Roles)
	c.AddAll(other, -1)
	return c
}

// Reaches reports whether the minimum of a spec is reached. A gang without one reaches nothing.
func (c Count) Reaches(spec *Spec) bool {
	return spec.Min > 0 && c.N >= spec.Min && len(c.Lacks(spec)) == 0
}

// Short returns how many pods the minimum of a spec needs in addition.
func (c Count) Short(spec *Spec) int {
	roles := 0
	for _, n := range c.Lacks(spec) {
		roles += n
	}
	return max(0, spec.Min-c.N, roles)
}

// Lacks returns how many pods of each role a spec needs in addition; nil for none. The roles of an elastic gang need
// none.
func (c Count) Lacks(spec *Spec) map[string]int {
	if !spec.RolesBind() {
		return nil
	}
	return c.Missing(spec.MinByRole)
}

// Missing returns how many pods of each role are fewer than these; nil for none.
func (c Count) Missing(minByRole map[string]int) map[string]int {
	var missing map[string]int
	for role, n := range minByRole {
		if n > c.Roles[role] {
			if missing == nil {
				missing = map[string]int{}
			}
			missing[role] = n - c.Roles[role]
		}
	}
	return missing
}
