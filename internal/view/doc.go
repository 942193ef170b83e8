// Package view is the JSON that operators get: the same fields from the command line and from the admin API.
package view
