// Package output prints what the commands of kubectl gang have found, with the printers of kubectl: as a table, as JSON
// or YAML, or by a template. Colours are for terminals only.
package output
