package archive

// Begin opens the file in which what gets a name is written.
var Begin = begin
