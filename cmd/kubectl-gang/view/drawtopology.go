package view

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Signs of a picture.
const (
	signUsed   = "#"
	signHeld   = "+"
	signClosed = "x"
	signFree   = "."
)

const (
	// cellWidth is how many signs a node has at most: one for each GPU, as a rule.
	cellWidth = 8
	// barWidth is how many signs a domain has whose nodes are too many to be drawn one by one.
	barWidth = 38
	// pictureWidth is how wide the nodes of a domain may be.
	pictureWidth = 40
)

// Line is a line of the picture of a topology.
type Line struct {
	// Depth is how many domains are around it.
	Depth int
	Title string
	// Domain is the nodes that the line is about: one node, or a domain of them.
	*Domain
	// Picture is what is used (#), held (+), free on nodes that take no pods (x) and free (.): node by node, or of all
	// nodes at once where they are many. Of domains that have others inside it is empty.
	Picture string
}

// Lines draws a topology; with a line for each node if asked for.
func (t *Topology) Lines(withNodes bool) []Line {
	lines := t.lines(0, withNodes)
	lines[0].Title = string(t.Resource) + " on " + lines[0].Title
	return lines
}

func (d *Domain) lines(depth int, withNodes bool) []Line {
	line := Line{Depth: depth, Title: d.Title(), Domain: d}
	if len(d.Domains) == 0 {
		line.Picture = d.picture()
	}
	list := []Line{line}
	for i := range d.Domains {
		list = append(list, d.Domains[i].lines(depth+1, withNodes)...)
	}
	if !withNodes {
		return list
	}
	for _, m := range d.Members {
		node := &Domain{Nodes: 1, FreeCapacity: m.FreeCapacity, Largest: m.Free}
		if m.Free == m.Total {
			node.Empty = 1
		}
		list = append(list, Line{Depth: depth + 1, Title: m.Name, Domain: node, Picture: m.cell()})
	}
	return list
}

// picture draws the nodes of a domain one by one, if they are few enough.
func (d *Domain) picture() string {
	var cells strings.Builder
	for _, m := range d.Members {
		cells.WriteString(m.cell())
		if cells.Len() > pictureWidth {
			return "[" + d.signs(barWidth) + "]"
		}
	}
	return cells.String()
}

func (m *NodeCapacity) cell() string { return "[" + m.signs(min(int(m.Total), cellWidth)) + "]" }

// signs draws a room with n signs. What does not come out even is drawn as less free.
func (r *FreeCapacity) signs(n int) string {
	var signs strings.Builder
	left := n
	for _, part := range []struct {
		amount int64
		sign   string
	}{{r.Used, signUsed}, {r.Held, signHeld}, {r.Closed, signClosed}} {
		share := min(left, int((part.amount*int64(n)+r.Total-1)/r.Total))
		left -= share
		signs.WriteString(strings.Repeat(part.sign, share))
	}
	return signs.String() + strings.Repeat(signFree, left)
}

// Amount returns an amount of a resource as users write it.
func Amount(name v1.ResourceName, amount int64) string {
	quantity, some := resource.Vector{name: amount}.List()[name]
	if !some {
		return "0"
	}
	return quantity.String()
}
