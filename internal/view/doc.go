// Package view is how operators see things in JSON: the same fields from the command line and from the admin API.
package view
