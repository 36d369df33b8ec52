//! Variables by which `mapwire far` tells the library that it preloads what is wanted.

/// How much of the program's memory is in RAM, in pages of 4,096 bytes.
pub const LOCAL: &str = "MAPWIRE_FAR_LOCAL_PAGES";
/// The folder of the file that holds the rest.
pub const DISK: &str = "MAPWIRE_FAR_DISK";
/// Set if private mappings of files are far too.
pub const FILES: &str = "MAPWIRE_FAR_FILES";
/// The process that prints figures at its end in any case. Those that it starts do if they stored pages.
pub const STATS: &str = "MAPWIRE_FAR_STATS";
/// The store of names in which donors of memory are found.
pub const DONORS: &str = "MAPWIRE_FAR_DONORS";
/// The file of the secret that donors have too.
pub const SECRET: &str = "MAPWIRE_FAR_SECRET_FILE";
/// How many donors have each page.
pub const COPIES: &str = "MAPWIRE_FAR_COPIES";
