package placement

// homes returns the slices of the level that have members in a domain, each with the node of the first of these: its
// domain is that of the slice, also if others are apart from it.
func (l Level) homes(on []PlacedMember, label func(node int, key string) (string, bool)) map[int]int {
	homes := map[int]int{}
	for _, standing := range on {
		slice := standing.Rank / l.Slice
		if _, known := homes[slice]; known {
			continue
		}
		if _, inside := label(standing.Node, l.Key); inside {
			homes[slice] = standing.Node
		}
	}
	return homes
}

// Bond is a domain that members of a slice must share, by one level.
type Bond struct {
	Level
	// Number is that of the slice.
	Number int
	// Home is the node of a placed member of the slice, and Value its domain. Home is negative if there is none: then the
	// slice may be in any domain.
	Home  int
	Value string
}

// Allows reports whether a node with these labels may have a member of the slice.
func (b *Bond) Allows(labels map[string]string) bool {
	value, inside := labels[b.Key]
	return inside && (b.Home < 0 || value == b.Value)
}

// Bonds returns a function that tells where a member of a rank must be: by a bond of the required topology, and of each
// level with slices.
func (g *Gang) Bonds(label func(node int, key string) (string, bool)) func(rank int) []Bond {
	levels := g.fixedLevels()
	homes := make([]map[int]int, len(levels))
	for i, level := range levels {
		homes[i] = level.homes(g.On, label)
	}
	return func(rank int) []Bond {
		bonds := make([]Bond, len(levels))
		for i, level := range levels {
			bond := Bond{Level: level, Number: rank / level.Slice, Home: -1}
			if home, begun := homes[i][bond.Number]; begun {
				bond.Home = home
				bond.Value, _ = label(home, level.Key)
			}
			bonds[i] = bond
		}
		return bonds
	}
}
